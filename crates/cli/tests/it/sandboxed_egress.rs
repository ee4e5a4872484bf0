//! Network access of agents' commands: only with a mandate that allows it, judged by the law, with the labels of all
//! that the command could have read.

use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sandboxed_commands::SandboxedAgent;

/// A server on this machine that answers `hello`, and a counter of its connections.
fn server() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 1024]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
        }
    });
    (address, asked)
}

/// Fetches a page through the proxy from the environment; python exists wherever the tests run.
fn fetch(url: &str) -> String {
    format!(
        "python3 -c 'import urllib.request as u, urllib.error as e\ntry: print(u.urlopen(\"{url}\").read().decode())\nexcept e.HTTPError as x: print(x.code, x.read().decode())\nexcept OSError as x: print(\"unreachable\")'"
    )
}

fn listing(at: SocketAddr) -> String {
    let place = |port: u16| format!("{{ host: '127.0.0.1', port: {port}, scheme: 'http' }}");
    format!("{{ egress: {{ agents: {{ main: [{}] }} }} }}", place(at.port()))
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_command_reaches_only_listed_addresses_on_record() {
    let (at, asked) = server();
    let (other, unasked) = server();
    let mut works = SandboxedAgent::with_tools(&listing(at), "exec, egress").await;
    let reached = works.run(&fetch(&format!("http://{at}/"))).await;
    assert!(reached.contains("[stdout]\nhello\n"), "{reached}");
    let refused = works.run(&fetch(&format!("http://{other}/"))).await;
    assert!(refused.contains("403") && !refused.contains("hello"), "{refused}");
    // Without the proxy no address can be reached.
    let around = works
        .run(&format!("bash -c 'echo > /dev/tcp/{}/{}' && echo open || echo closed", at.ip(), at.port()))
        .await;
    assert!(around.contains("[stdout]\nclosed\n"), "{around}");
    assert_eq!((asked.load(Ordering::SeqCst), unasked.load(Ordering::SeqCst)), (1, 0));

    // The verdict has the labels of all that the command could have read, although the command was still running.
    let verdicts = works.egress_verdicts().await;
    assert_eq!(verdicts[0]["decision"], "allow", "{verdicts:#?}");
    assert_eq!(verdicts[0]["facts"]["labels"]["private"], true, "{verdicts:#?}");
    works.end();
}

/// One connection brings in untrusted text. Together with private data in the workspace, the next connection would
/// complete the lethal trifecta.
#[tokio::test(flavor = "multi_thread")]
async fn l7_egress_after_untrusted_input_needs_approval() {
    let (at, asked) = server();
    let mut works = SandboxedAgent::with_tools(&listing(at), "exec, egress").await;
    let (first, second) = (fetch(&format!("http://{at}/")), fetch(&format!("http://{at}/leak")));
    let call = json!({ "command": format!("{first}; timeout 2 {second}; echo over"), "timeoutSeconds": 30 });
    let ran = works.exec(call).await;
    assert!(ran.contains("hello") && ran.contains("over"), "{ran}");
    assert_eq!(ran.matches("hello").count(), 1, "{ran}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let verdicts = works.egress_verdicts().await;
    let decisions: Vec<&str> = verdicts.iter().filter_map(|v| v["decision"].as_str()).collect();
    assert_eq!(decisions, ["allow", "ask"], "{verdicts:#?}");
    works.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_mandate_without_egress_has_no_network() {
    let (at, asked) = server();
    let mut works = SandboxedAgent::with_tools(&listing(at), "exec").await;
    let ran = works
        .run(&format!("env | grep -ci proxy; ls /run/tribune; {}", fetch(&format!("http://{at}/"))))
        .await;
    assert!(ran.contains("[stdout]\n0\nunreachable\n"), "{ran}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(works.egress_verdicts().await, [] as [serde_json::Value; 0]);
    works.end();
}
