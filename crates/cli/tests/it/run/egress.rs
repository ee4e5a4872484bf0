//! Network access of a run: named addresses, addresses that a person allows, and no other.

use std::collections::HashMap;
use std::io;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tribune_config::Config;
use tribune_daemon::daemon::DaemonOverrides;
use tribune_egress::{Network, Unresolved};
use tribune_testkit::upstream::{FakeUpstream, UpstreamReply};
use tribune_testkit::{TempHome, config};

use super::{Site, session};
use crate::in_process_daemon::InProcessDaemon;

/// A server on this machine that answers every request with the same word.
pub(super) fn server(word: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut heard = [0; 4096];
            let _ = stream.read(&mut heard);
            let length = word.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{word}");
            let _ = stream.write_all(head.as_bytes());
        }
    });
    address
}

/// A fake network in which host names resolve to servers on this machine.
#[derive(Debug, Default)]
struct FakeNetwork {
    names: HashMap<String, IpAddr>,
    routes: HashMap<SocketAddr, SocketAddr>,
}

#[async_trait]
impl Network for FakeNetwork {
    async fn resolve(&self, host: &str, _port: u16) -> Result<Vec<IpAddr>, Unresolved> {
        self.names.get(host).map(|address| vec![*address]).ok_or(Unresolved::Failed)
    }

    fn is_own(&self, _: IpAddr) -> bool {
        false
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
        // An address without a route here would leave the machine.
        let to = self.routes.get(&address).ok_or(io::ErrorKind::NetworkUnreachable)?;
        tokio::net::TcpStream::connect(to).await
    }
}

#[test]
fn named_addresses_are_reached_and_no_others() {
    let site = Site::new();
    let (listed, other) = (server("listed"), server("other"));
    let line = format!(
        "curl -s http://{listed}/; echo; python3 -c \"import urllib.request; \
         print(urllib.request.urlopen('http://{listed}/x').read().decode())\"; \
         curl -s -o refused -w '%{{http_code}}\\n' --noproxy '' http://{other}/; cat refused; echo; \
         curl -s --max-time 3 --noproxy '*' http://{listed}/ || echo no way around"
    );
    let at = listed.to_string();
    let ran = site.run(&["--name", "reach", "--net", &at, "-q", "--", "sh", "-c", &line]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(&lines[..3], ["listed", "listed", "403"], "{ran:?}");
    assert!(lines[3].contains("is an address, and not listed as such"), "{ran:?}");
    assert_eq!(lines[4], "no way around");
    let egress = format!("egress:{}", session("reach"));
    let verdicts = site.log(&egress, "policy_verdict");
    let said: Vec<(&str, &str)> = verdicts
        .iter()
        .map(|one| (one["decision"].as_str().unwrap(), one["rules"][0].as_str().unwrap()))
        .collect();
    assert_eq!(
        said,
        [("allow", "mandate.allow"), ("allow", "mandate.allow"), ("deny", "hook.egress.literal")]
    );
    assert_eq!(verdicts[0]["waivedBy"], "egress.listed", "{}", verdicts[0]);
    assert_eq!(site.events(&egress, "delivery"), ["ended", "ended"]);
    // Only for that run.
    let ran = site.run(&["-q", "--", "sh", "-c", &format!("curl -s --noproxy '' http://{listed}/")]);
    assert!(ran.out.contains("\"denied\""), "{ran:?}");
    site.end();
}

#[test]
fn l1_unnamed_address_waits_for_a_person() {
    let to = server("hello");
    let public: SocketAddr = "93.184.215.14:80".parse().unwrap();
    let world = FakeNetwork {
        names: HashMap::from([("example.org".to_owned(), public.ip())]),
        routes: HashMap::from([(public, to)]),
    };
    let extras = || DaemonOverrides {
        network: Some(Arc::new(FakeNetwork { names: world.names.clone(), routes: world.routes.clone() })),
        ..DaemonOverrides::default()
    };
    let home = TempHome::new();
    std::fs::create_dir(home.folder.path().join("project")).unwrap();
    let site = Site { daemon: InProcessDaemon::with_extras(home, &config(), extras()) };

    // An approver allows it, and the waiting connection continues.
    let run = site.start(&["--name", "asks", "--", "curl", "-s", "http://example.org/path"]);
    let card = run.until_err("wants to connect to http://example.org:80/path");
    assert!(card.starts_with("tribune: "), "{card}");
    let command = run.until_err("allow it: ");
    let question = site.question();
    let id = question["id"].as_str().unwrap();
    assert!(command.contains(&format!("tribune approvals allow {id} --home ")), "{command}");
    assert_eq!((&question["tool"], &question["session_key"]), (&json!("egress"), &json!(session("asks"))));
    // It waits for ten minutes, and the approval says so.
    let is_told = |text: String| text.contains("10m") || text.contains("9m");
    assert!(is_told(site.daemon.ok(&["approvals", "list"])), "{}", site.daemon.ok(&["approvals", "list"]));
    assert!(
        is_told(site.daemon.ok(&["approvals", "show", id])),
        "{}",
        site.daemon.ok(&["approvals", "show", id])
    );
    site.daemon.ok(&["approvals", "allow", id]);
    let (status, out, _) = run.end();
    assert_eq!((status.code(), out.as_str()), (Some(0), "hello\n"));
    let egress = format!("egress:{}", session("asks"));
    let verdicts = site.log(&egress, "policy_verdict");
    let decisions: Vec<&str> = verdicts.iter().map(|one| one["decision"].as_str().unwrap()).collect();
    assert_eq!(decisions, ["ask", "allow"]);
    assert_eq!(site.events(&egress, "delivery"), ["ended"]);

    // Or denies it.
    let run = site.start(&["--name", "denied", "--", "curl", "-s", "http://example.org/"]);
    let id = site.question()["id"].as_str().unwrap().to_owned();
    site.daemon.ok(&["approvals", "deny", &id]);
    let (_, out, _) = run.end();
    assert!(out.contains("\"code\":\"denied\""), "{out}");
    assert_eq!(site.events(&format!("egress:{}", session("denied")), "delivery"), Vec::<String>::new());

    // A pending approval ends with its run.
    let run = site.start(&["--name", "gone", "--", "curl", "-s", "http://example.org/"]);
    site.question();
    run.signal(rustix::process::Signal::TERM);
    run.end();
    super::within("nothing waits", || {
        site.daemon.ask("approval.list", &json!({}))["approvals"].as_array().unwrap().is_empty()
    });
    site.end();
}

/// A TLS server with a self-signed certificate.
struct Tls {
    child: Child,
    port: u16,
}

impl Tls {
    fn start(site: &Site) -> Self {
        let folder = site.project();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        // The port was just free; no other test takes it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("openssl")
            .args(["s_server", "-quiet", "-www", "-key", "key.pem", "-cert", "cert.pem", "-accept"])
            .arg(format!("127.0.0.1:{port}"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        super::within("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, port }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tls_goes_through_the_tunnel_to_the_named_host_only() {
    let site = Site::new();
    let tls = Tls::start(&site);
    let at = format!("localhost:{}", tls.port);
    let line = format!(
        "curl -s --cacert cert.pem -o page -w '%{{http_code}}\\n' https://{at}/; grep -c Cipher page; \
         python3 -c \"import ssl,urllib.request as u; c=ssl.create_default_context(cafile='cert.pem'); \
         print(u.urlopen('https://{at}/', context=c).status)\"; \
         curl -sk --connect-to example.org:443:{at} https://example.org/ || echo another name"
    );
    let ran = site.run(&["--name", "tls", "--net", &at, "-q", "--", "sh", "-c", &line]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("200", "200", "another name"), "{ran:?}");
    let egress = format!("egress:{}", session("tls"));
    let ends = site.log(&egress, "delivery");
    let outcomes: Vec<&str> = ends.iter().map(|end| end["outcome"].as_str().unwrap()).collect();
    // Each is recorded when it has ended, and consecutive ones may end in either order.
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "done").count(), 2, "{ends:?}");
    let received = |end: &&serde_json::Value| end["received"].as_u64().unwrap() > 100;
    assert_eq!(ends.iter().filter(received).count(), 2, "{ends:?}");
    site.end();
}

#[test]
fn default_model_is_reachable_without_its_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let upstream = runtime.block_on(FakeUpstream::start());
    upstream.reply(UpstreamReply::json(
        200,
        &json!({
            "id": "c1", "object": "chat.completion", "created": 1, "model": "small",
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Hello." } }],
            "usage": { "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7 },
        }),
    ));
    let models = format!(
        "{{ models: {{ default: 'nearby:small', providers: {{ nearby: {{ baseUrl: '{}/v1', local: true, startupValidation: 'off', \
         models: {{ small: {{ contextWindow: 8192, maxOutputTokens: 1024 }} }} }} }} }} }}",
        upstream.base_url()
    );
    let models = Config::parse("config.json5", &models).unwrap().models;
    let site = Site::with(&Config { models, ..config() });
    let line = "echo $TRIBUNE_MODEL $OPENAI_API_KEY $OPENAI_BASE_URL; \
                curl -s $OPENAI_BASE_URL/chat/completions -H \"authorization: Bearer $OPENAI_API_KEY\" -H 'content-type: application/json' \
                -d '{\"model\": \"small\", \"max_tokens\": 16, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}'";
    let ran = site.run(&["--name", "thinks", "-q", "--", "sh", "-c", line]);
    let (head, answer) = ran.out.split_once('\n').unwrap();
    let placeholder = tribune_egress::proxy_env::PLACEHOLDER;
    assert_eq!(head, format!("small {placeholder} http://localhost:4000/v1"), "{ran:?}");
    assert!(answer.contains("\"Hello.\""), "{ran:?}");
    let asked = site.log("proxy:nearby", "delivery");
    assert_eq!(
        (&asked[0]["session"], &asked[0]["model"]),
        (&json!(session("thinks")), &json!("small")),
        "{asked:?}"
    );
    site.end();
}

#[test]
fn forbidden_address_asks_nobody() {
    let site = Site::new();
    for host in ["localhost", "a.localhost"] {
        let line = format!("curl -s --noproxy '' http://{host}:18999/");
        let ran = site.run(&["-q", "--", "sh", "-c", &line]);
        assert!(ran.out.contains(&format!("--net {host}:18999")), "{ran:?}");
    }
    assert_eq!(site.daemon.ask("approval.list", &json!({}))["approvals"], json!([]));
    site.end();
}
