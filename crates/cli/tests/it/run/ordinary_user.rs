//! `tribune run` by an ordinary user, which starts the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::fixture::{CliOutput, Place, binary, cli_output};

/// The user id of an ordinary user.
const NOBODY: &str = "65534";

struct OrdinaryUser {
    place: Place,
}

impl OrdinaryUser {
    fn new() -> Self {
        let place = Place::new();
        let folder = place.folder.path();
        fs::copy(binary(), place.path("tribune")).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        let user = Self { place };
        let made = user.script("mkdir -p home project && echo one > project/a.txt && echo '{ gateway: { address: \"127.0.0.1:0\" } }' > home/config.json5");
        assert_eq!(made.code, 0, "{made:?}");
        user
    }

    fn script(&self, line: &str) -> CliOutput {
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args([
                    &format!("--reuid={NOBODY}"),
                    &format!("--regid={NOBODY}"),
                    "--clear-groups",
                    "sh",
                ]);
                command
            }
            false => Command::new("sh"),
        };
        let home = self.place.home();
        command.args(["-c", line]).env("TRIBUNE_HOME", &home).env("HOME", &home);
        cli_output(
            command
                .env("T", self.place.path("tribune"))
                .current_dir(self.place.folder.path())
                .output()
                .unwrap(),
        )
    }
}

#[test]
fn l7_an_ordinary_user_runs_and_lands() {
    let user = OrdinaryUser::new();
    let ran = user.script("cd project && $T run --name one -- sh -c 'id -u; echo two >> a.txt; mkdir -p closed && chmod 000 closed; exit 6'");
    assert_eq!((ran.code, ran.out.as_str()), (6, "1000\n"), "{ran:?}");
    assert!(ran.err.contains("started the daemon at http://127.0.0.1:"), "{ran:?}");
    assert!(ran.err.contains("2 changes"), "unreadable folders are reported: {ran:?}");
    assert_eq!(user.script("cat project/a.txt").out, "one\n");
    let landed = user.script("$T workspace land one --all && cat project/a.txt && stat -c %a project/closed && ls -A home/workspaces");
    assert_eq!(landed.out, "landed a.txt\nlanded closed\n2 changes landed\none\ntwo\n0\n", "{landed:?}");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut heard = [0; 4096];
        let _ = std::io::Read::read(&mut stream, &mut heard);
        std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        )
        .unwrap();
    });
    let ran = user.script(&format!("cd project && $T run -q --net {at} -- curl -s http://{at}/"));
    assert_eq!(ran.out, "ok", "{ran:?}");
    serving.join().unwrap();
    let down = user.script("$T down");
    assert_eq!(down.code, 0, "{down:?}");
}

#[test]
fn a_taken_port_is_no_reason_not_to_run() {
    let user = OrdinaryUser::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!("{{ gateway: {{ address: \"{}\" }} }}", taken.local_addr().unwrap());
    let ran = user.script(&format!("echo '{config}' > home/config.json5; cd project && $T run -- echo ran"));
    assert_eq!((ran.code, ran.out.as_str()), (0, "ran\n"), "{ran:?}");
    assert_eq!(user.script("$T down").code, 0);
}

/// For an ordinary user, a sandboxed program has the same user id, so the kernel would let it open the other end of a
/// pipe.
#[test]
fn l7_pipes_of_an_ordinary_user_are_not_opened_from_their_other_end() {
    let user = OrdinaryUser::new();
    let steal = "import os
try: print('stole', os.read(os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK), 99), file=open('/proc/self/fd/2', 'w'))
except OSError: pass";
    let inject = "import os
try: os.write(os.open('/proc/self/fd/0', os.O_WRONLY | os.O_NONBLOCK), b'echo injected\\n')
except OSError: pass";
    fs::write(user.place.path("project/steal.py"), steal).unwrap();
    fs::write(user.place.path("project/inject.py"), inject).unwrap();
    let ran = user.script(
        "cd project && (echo of another; $T run -q -- python3 steal.py </dev/null; touch ../go) \
         | (while [ ! -e ../go ]; do :; done; cat)",
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "of another\n"), "{ran:?}");
    assert!(!ran.err.contains("of another"), "{ran:?}");
    let ran = user.script("cd project && echo \"$T run -q -- python3 inject.py; echo over\" | sh");
    assert_eq!((ran.code, ran.out.as_str()), (0, "over\n"), "{ran:?}");
    assert_eq!(user.script("$T down").code, 0);
}
