//! A fake model on a local port, for trying agents by hand: `fake-model 127.0.0.1:4001`. It prints each request as one
//! line of JSON. `upstream/model.rs` describes how it responds.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for manual tests")]

use std::time::Duration;

use serde_json::json;
use tribune_testkit::FakeUpstream;

/// How often new requests are printed.
const POLL: Duration = Duration::from_millis(50);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let upstream = FakeUpstream::start_on(address.parse().unwrap()).await;
    upstream.act_as_model();
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
        tokio::time::sleep(POLL).await;
    }
}
