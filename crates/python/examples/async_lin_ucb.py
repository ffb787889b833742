"""Async-LinUCB written in Python: the same choices and messages as ``async-lin-ucb``, only slower.

An agent keeps sums over observations: those that all agents share, those on their way to the coordinator, and those not
sent. It uploads when what it did not send raised the information of its model by more than ln γ_U; the coordinator sends
its sums to every agent that is behind by more than ln γ_D.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

import posse

Floats = npt.NDArray[np.float64]
Sums = list[Any]  #: Σxxᵀ, Σxy and their number.
Letters = list[tuple[int | None, bytes | posse.Message]]


def nothing(dimension: int) -> Sums:
    return [np.zeros((dimension, dimension)), np.zeros(dimension), 0]


def total(*parts: Sums | None) -> Sums:
    present = [part for part in parts if part is not None]
    return [sum(column[1:], column[0]) for column in zip(*present, strict=True)]


def information(sums: Sums, regularization: float) -> float:
    """The information ln det(I + Σxxᵀ/λ)."""
    return float(np.linalg.slogdet(np.eye(len(sums[1])) + sums[0] / regularization)[1])


def statistics(dimension: int) -> int:
    """The numbers of a message with sums: a triangle, a vector, the count and the information."""
    return dimension * (dimension + 1) // 2 + dimension + 2


class Exchange(posse.Coordinator):
    """Adds up what agents upload, and sends the sum to agents that are behind."""

    def __init__(self, dimension: int, *, regularization: float = 0.1, download_threshold: float = 4.0) -> None:
        super().__init__(dimension)
        self.regularization = regularization
        self.patience = math.log(download_threshold)
        self.version = 0
        self.sums = nothing(dimension)
        #: For each agent: the information and the version that it has, and how many of its uploads are in the sums.
        self.seats: dict[int, tuple[float, int, int]] = {}

    def snapshot(self, agent: int, uploads: int, authoritative: bool = False) -> tuple[int | None, bytes | posse.Message]:
        self.seats[agent] = (information(self.sums, self.regularization), self.version, uploads)
        data = posse.pack(["snapshot", self.version, uploads, authoritative, *self.sums])
        return agent, posse.Message(data, statistics(self.dimension))

    def join(self, agent: int, returning: bool, now: float) -> Letters:
        known = self.seats.get(agent)
        uploads = known[2] if known is not None and returning else 0
        self.seats[agent] = (0.0, 0, uploads)
        if returning or (known is not None and self.version > 0):
            return [self.snapshot(agent, uploads, returning)]
        return []

    def leave(self, agent: int, now: float) -> Letters:
        self.seats.pop(agent, None)
        return []

    def receive(self, agent: int, message: bytes, now: float) -> Letters:
        number, based_on, has, *sums = posse.unpack(message)
        _, version, uploads = self.seats[agent]
        if number != uploads + 1:
            raise posse.ProtocolError(f"expected upload {uploads + 1}, got {number}")
        in_sync = version == based_on == self.version
        self.sums = total(self.sums, sums)
        self.version += 1
        known = information(self.sums, self.regularization)
        if in_sync:
            self.seats[agent] = (known, self.version, number)
        else:
            self.seats[agent] = (min(has, known), based_on, number)
        receipt = posse.pack(["receipt", number, self.version if in_sync else None])
        behind = [(a, seat[2]) for a, seat in sorted(self.seats.items()) if seat[0] + self.patience < known]
        return [(agent, posse.Message(receipt)), *(self.snapshot(a, sent) for a, sent in behind)]

    def inspect(self) -> dict[str, Any]:
        known = information(self.sums, self.regularization)
        return {"observations": self.sums[2], "version": self.version, "information": known}


class PythonAsyncLinUcb(posse.Agent):
    """Async-LinUCB written in Python."""

    name = "python-async-lin-ucb"
    coordinator = Exchange

    def __init__(
        self,
        setup: posse.Setup,
        *,
        upload_threshold: float = 2.0,
        download_threshold: float = 4.0,
        regularization: float = 0.1,
        noise: float = 0.1,
        confidence: float = 0.1,
        norm_bound: float = 1.0,
    ) -> None:
        super().__init__(setup)
        self.ln_threshold = math.log(upload_threshold)
        self.regularization = regularization
        self.noise = noise
        self.failure = 2.0 * math.log(1.0 / confidence)
        self.prior = math.sqrt(regularization) * norm_bound
        self.version = 0
        self.uploads = 0
        self.base = nothing(setup.dimension)
        self.in_flight: Sums | None = None
        self.buffer = nothing(setup.dimension)

    def choose(self, arms: Floats, user: int) -> tuple[int, float]:
        known = total(self.base, self.in_flight, self.buffer)
        gram = known[0] + self.regularization * np.eye(len(known[1]))
        solved = np.linalg.solve(gram, np.column_stack([known[1], arms.T]))
        width = self.noise * math.sqrt(information(known, self.regularization) + self.failure) + self.prior
        widths = np.sqrt(np.einsum("kd,dk->k", arms, solved[:, 1:]))
        return int(np.argmax(arms @ solved[:, 0] + width * widths)), 1.0

    def learn(self, arm: Floats, reward: float, user: int) -> posse.Message | None:
        self.buffer = total(self.buffer, [np.outer(arm, arm), reward * arm, 1])
        return self.upload_if_due()

    def fresh(self) -> float:
        """By how much what was not sent raised the information."""
        if self.buffer[2] == 0:
            return 0.0
        sent = total(self.base, self.in_flight)
        return information(total(sent, self.buffer), self.regularization) - information(sent, self.regularization)

    def upload_if_due(self) -> posse.Message | None:
        if self.in_flight is not None or not self.fresh() > self.ln_threshold:
            return None
        self.uploads += 1
        self.in_flight, self.buffer = self.buffer, nothing(self.setup.dimension)
        return self.upload()

    def upload(self) -> posse.Message:
        assert self.in_flight is not None
        has = information(total(self.base, self.in_flight), self.regularization)
        data = posse.pack([self.uploads, self.version, has, *self.in_flight])
        return posse.Message(data, statistics(self.setup.dimension))

    def receive(self, message: bytes) -> posse.Message | None:
        kind, *rest = posse.unpack(message)
        if kind == "receipt":
            number, version = rest
            if number != self.uploads or self.in_flight is None:
                return None
            self.base, self.in_flight = total(self.base, self.in_flight), None
            self.version = self.version if version is None else version
            return self.upload_if_due()
        version, contains, authoritative, *sums = rest
        acknowledged = self.uploads - (self.in_flight is not None)
        if not authoritative and (version <= self.version or contains < acknowledged):
            return None
        if contains > self.uploads:
            raise posse.ProtocolError(f"a snapshot with upload {contains} of {self.uploads}")
        contained = self.in_flight is not None and contains >= self.uploads
        if contained:
            self.in_flight = None
        self.base, self.version = sums, version
        if authoritative:
            # The coordinator may have lost uploads that it had confirmed: count from what it has.
            self.uploads = contains + (self.in_flight is not None)
            return self.upload_if_due() if self.in_flight is None else self.upload()
        return self.upload_if_due() if contained else None

    def inspect(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "shared": self.base[2],
            "in_flight": None if self.in_flight is None else (self.uploads, self.in_flight[2]),
            "unsent": self.buffer[2],
            "information": self.fresh(),
        }
