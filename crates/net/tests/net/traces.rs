//! OpenTelemetry traces: a collector hears of an upload's whole way, from the agent to the disk.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use posse_net::coordinator::{Options, ServeConfig, serve};
use posse_net::{Agent, AgentConfig, Tracer};
use serde_json::Value;

use crate::support::{config, in_a_minute, interact, look, talkative};

/// A collector that takes everything and shows the documents that it was sent.
fn collector() -> (SocketAddr, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (documents, taken) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let body = loop {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).unwrap();
                bytes.extend_from_slice(&piece[..read]);
                let text = String::from_utf8_lossy(&bytes);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if body.len() == length.parse::<usize>().unwrap() {
                    break body.to_owned();
                }
            };
            // Whoever hears the answer can read the document.
            if documents.send(serde_json::from_str(&body).unwrap()).is_err() {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        }
    });
    (address, taken)
}

/// The spans of all documents, each with the name of its service.
fn spans(documents: impl Iterator<Item = Value>) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for document in documents {
        let resource = &document["resourceSpans"][0];
        let service = resource["resource"]["attributes"][0]["value"]["stringValue"].as_str().unwrap();
        for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
            all.push((service.to_owned(), span.clone()));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_one_trace_from_the_agent_to_the_disk() {
    let (address, taken) = collector();
    let url = format!("http://{address}");
    let data = tempfile::tempdir().unwrap();
    let of_coordinator = Tracer::new(&url, "posse-coordinator").unwrap();
    let of_agent = Tracer::new(&url, "posse-agent").unwrap();
    let options = Options { tracer: Some(of_coordinator.clone()), ..Options::default() };
    let config_ = ServeConfig::on_loopback(data.path(), vec![talkative()]);
    let running = serve(config_, options).await.unwrap();
    let settings = AgentConfig { tracer: Some(of_agent.clone()), ..config(running.address, 7) };
    let agent = Agent::start(settings).await.unwrap();
    for step in 0..3 {
        interact(&agent, step);
        in_a_minute(agent.settled()).await;
    }
    // The coordinator answers first and traces then; it looks after both.
    look(&running).await;
    tokio::task::spawn_blocking(move || {
        of_coordinator.flush();
        of_agent.flush();
    })
    .await
    .unwrap();
    let mut traces: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
    for (service, span) in spans(taken.try_iter()) {
        traces.entry(span["traceId"].as_str().unwrap().to_owned()).or_default().push((service, span));
    }
    assert!(!traces.is_empty());
    for trace in traces.values() {
        let find = |name: &str| {
            let mut found = trace.iter().filter(|(_, span)| span["name"] == name);
            let (service, span) = found.next().unwrap_or_else(|| panic!("no {name} in {trace:?}"));
            assert!(found.next().is_none(), "{name} is there once");
            (service.as_str(), span)
        };
        let ((agent, upload), (coordinator, receive), (_, log)) =
            (find("upload"), find("receive"), find("log"));
        assert_eq!((agent, coordinator), ("posse-agent", "posse-coordinator"));
        assert_eq!(upload["parentSpanId"], "");
        assert_eq!(receive["parentSpanId"], upload["spanId"]);
        assert_eq!(log["parentSpanId"], receive["spanId"]);
        let time = |span: &Value, which: &str| span[which].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time(upload, "startTimeUnixNano") <= time(upload, "endTimeUnixNano"));
        assert!(time(log, "startTimeUnixNano") >= time(receive, "startTimeUnixNano"));
        assert_eq!(upload["attributes"][0]["value"]["intValue"], "7");
    }
}

#[test]
fn an_address_that_no_trace_can_be_sent_to_is_refused() {
    for url in ["https://127.0.0.1:4318", "127.0.0.1:4318", "http://:4318", "http://user@host"] {
        assert_eq!(Tracer::new(url, "posse-agent").unwrap_err().name, "otlp", "{url}");
    }
}
