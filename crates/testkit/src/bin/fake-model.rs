//! A model on a port of this machine that does as it is told, for trying agents by hand: `fake-model 127.0.0.1:4001`. Each request
//! is printed as one line of JSON. What it does is written in `upstream/model.rs`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for whoever tests")]

use std::time::Duration;

use serde_json::json;
use tribune_testkit::FakeUpstream;

/// How often it looks for requests to print.
const LOOK: Duration = Duration::from_millis(50);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let upstream = FakeUpstream::start_on(address.parse().unwrap()).await;
    upstream.acts_as_model();
    println!("{}", json!({ "listening": upstream.base_url() }));
    let mut printed = 0;
    loop {
        for request in upstream.requests().into_iter().skip(printed) {
            printed += 1;
            let headers: serde_json::Map<String, serde_json::Value> = request
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
                .collect();
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let line = json!({ "method": request.method.as_str(), "path": request.path, "headers": headers, "body": body });
            println!("{line}");
        }
        tokio::time::sleep(LOOK).await;
    }
}
