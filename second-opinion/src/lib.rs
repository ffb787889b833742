//! What another library says about the privacy of posse: everything is in `tests`.
#![forbid(unsafe_code)]
