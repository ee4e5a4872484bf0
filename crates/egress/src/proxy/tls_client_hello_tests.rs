use super::*;

/// The ClientHello that OpenSSL 3 sends to `api.example.com`.
const OPENSSL: &str = "\
    1603010200010001fc03035775583b926c4584bc289edf0daa85eb0fd9f136c99ad043a578c2e4fcc6dbb52035b12c649c56\
    08445d5b696b31112db352b91699b551bf637a5679dd38498ef20024130213031301c02cc030c02bc02fcca9cca8c024c028\
    c023c027009f009e006b006700ff0100018f00000014001200000f6170692e6578616d706c652e636f6d000b000403000102\
    000a00160014001d0017001e0019001801000101010201030104002300000016000000170000000d002a0028040305030603\
    080708080809080a080b080408050806040105010601030303010302040205020602002b00050403040303002d0002010100\
    3300260024001d0020fc39a94edfe026cd4892f513767a366202414dd03b21dc0e02b240fda0ad0f72001500de0000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000";

fn openssl() -> Vec<u8> {
    let hex: Vec<u8> = OPENSSL.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.chunks(2).map(byte).collect()
}

fn long(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &long(content)].concat()
}

fn sni(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &long(&[&[HOST_NAME][..], &long(name)].concat()))
}

/// A ClientHello message with these extensions.
fn handshake(extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0], &long(&[0x13, 1]), &[1, 0], &long(extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO][..], &length[1..], &body].concat()
}

/// Splits the message into records of at most this size.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| [&[HANDSHAKE, 3, 1][..], &long(piece)].concat()).collect()
}

fn of(extensions: &[u8]) -> Hello {
    Hello::read(&records(&handshake(extensions), MAX_RECORD))
}

fn named(name: &str) -> Hello {
    Hello::Client(Some(name.to_owned()))
}

#[test]
fn a_real_client_hello_is_parsed_at_every_split() {
    let bytes = openssl();
    assert_eq!(Hello::read(&bytes), named("api.example.com"));
    for end in 0..bytes.len() {
        assert_eq!(Hello::read(&bytes[..end]), Hello::Unfinished, "{end}");
    }
    for size in [1, 2, 3, 5, 64, 300] {
        assert_eq!(Hello::read(&records(&bytes[RECORD_HEAD..], size)), named("api.example.com"), "{size}");
    }
}

#[test]
fn accepts_one_server_name_or_none() {
    assert_eq!(of(&sni(b"a.example")), named("a.example"));
    assert_eq!(
        of(&[extension(10, &[1, 2]), sni(b"a.example"), extension(0xfe0d, &[0; 40])].concat()),
        named("a.example")
    );
    assert_eq!(of(&[]), Hello::Client(None));
    assert_eq!(of(&extension(0xfe0d, &[0; 40])), Hello::Client(None));
    let two = long(&[&[HOST_NAME][..], &long(b"a.example"), &[HOST_NAME], &long(b"b.example")].concat());
    for bad in [
        [sni(b"a.example"), sni(b"b.example")].concat(),
        extension(SERVER_NAME, &two),
        extension(SERVER_NAME, &[]),
        extension(SERVER_NAME, &[0, 0]),
        extension(SERVER_NAME, &[&long(&[&[HOST_NAME][..], &long(b"a")].concat())[..], &[0]].concat()),
        extension(SERVER_NAME, &long(&[&[1][..], &long(b"a.example")].concat())),
        sni("\u{e4}.example".as_bytes()),
        sni(&[0xff, 0xfe]),
        vec![0, 0, 0, 9, 1],
    ] {
        assert_eq!(of(&bad), Hello::Other, "{bad:02x?}");
    }
}

#[test]
fn rejects_other_protocols_at_the_first_bytes() {
    for bytes in [
        &b"G"[..],
        b"SSH-2.0-x",
        b"\x16\x02",
        b"\x16\x03\x09",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x05\x02",
        b"\x15\x03\x01\x00\x02\x02\x70",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
    ] {
        assert_eq!(Hello::read(bytes), Hello::Other, "{bytes:02x?}");
    }
    // Extra bytes behind the message in its record.
    let whole = handshake(&sni(b"a.example"));
    let behind = [&whole[..], &[0]].concat();
    assert_eq!(Hello::read(&records(&behind, MAX_RECORD)), Hello::Other);
    // A ClientHello that never ends is rejected at the size limit.
    let endless = handshake(&extension(21, &[0; 15_900]));
    assert_eq!(Hello::read(&records(&endless[..15_900], 100)[..MAX_HELLO_BYTES]), Hello::Other);
}

#[test]
fn flipped_bits_never_panic() {
    let bytes = openssl();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let _ = Hello::read(&changed);
        }
    }
}
