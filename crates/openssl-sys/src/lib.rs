//! Gives SQLCipher the cryptography library that TLS uses, AWS-LC, in place of a second one.
//!
//! SQLCipher takes AES-256-CBC, HMAC, PBKDF2 and random bytes from the `libcrypto` that the crate `openssl-sys` provides.
//! Built from source, OpenSSL was a sixth of the time of a release build, for four functions that AWS-LC has too. This
//! crate stands in for `openssl-sys`: its build script hands the headers of AWS-LC to libsqlite3-sys, with the one
//! interface that AWS-LC lacks (`include/evp_mac.h`), and the library is linked through `aws-lc-sys`.
//!
//! It has no Rust bindings of OpenSSL: another dependency that needs them does not compile.

// Links the library.
extern crate aws_lc_sys as _;
