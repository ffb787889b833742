//! Applications that ask a sidecar over HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::LoadError;

/// What is read of the answer to a choice.
#[derive(Deserialize)]
struct ChoiceMade<'a> {
    id: &'a str,
}

/// Asks the sidecar at `address` for choices and rewards them, over so many connections with `each` of them one after the other.
/// `offers` are the bodies of the questions, in turns. Returns how many choices with rewards there were in a second.
pub fn choose_over_http(
    address: &str,
    offers: &[String],
    connections: usize,
    each: usize,
) -> Pin<Box<dyn Future<Output = Result<f64, LoadError>> + Send>> {
    let questions: Arc<[Vec<u8>]> = offers.iter().map(|offer| request("/choose", offer)).collect();
    // An object, so that it is translated with the optimisation of this crate.
    Box::pin(ask_all(address.to_owned(), questions, connections, each))
}

async fn ask_all(
    address: String,
    questions: Arc<[Vec<u8>]>,
    connections: usize,
    each: usize,
) -> Result<f64, LoadError> {
    let failed = |error: std::io::Error| LoadError(format!("{address}: {error}"));
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(&address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        streams.push(stream);
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for stream in streams {
        tasks.spawn(ask_in_turn(stream, Arc::clone(&questions), each));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| LoadError(error.to_string()))??;
    }
    Ok((connections * each) as f64 / began.elapsed().as_secs_f64())
}

async fn ask_in_turn(mut stream: TcpStream, questions: Arc<[Vec<u8>]>, each: usize) -> Result<(), LoadError> {
    let mut answer = Vec::with_capacity(512);
    for round in 0..each {
        let body = ask(&mut stream, &questions[round % questions.len()], &mut answer).await?;
        let ChoiceMade { id } = serde_json::from_slice(&answer[body..])
            .map_err(|error| LoadError(format!("no choice: {error}")))?;
        let reward = format!("{{\"id\":\"{id}\",\"reward\":{:?}}}", (round % 3) as f64);
        ask(&mut stream, &request("/reward", &reward), &mut answer).await?;
    }
    Ok(())
}

/// A request with a JSON body.
fn request(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "host: localhost\r\ncontent-type: application/json";
    format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// Sends a request over an open connection and reads the answer. Returns where its body begins.
async fn ask(stream: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) -> Result<usize, LoadError> {
    let failed = |error: std::io::Error| LoadError(error.to_string());
    stream.write_all(request).await.map_err(failed)?;
    answer.clear();
    loop {
        if stream.read_buf(answer).await.map_err(failed)? == 0 {
            return Err(LoadError("the sidecar hung up".to_owned()));
        }
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]);
        if !head.starts_with("HTTP/1.1 200 ") {
            let why = head.lines().next().unwrap_or_default();
            return Err(LoadError(format!("the sidecar answered {why}")));
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let length: usize = length.ok_or_else(|| LoadError("an answer without a length".to_owned()))?;
        if answer.len() >= end + 4 + length {
            return Ok(end + 4);
        }
    }
}
