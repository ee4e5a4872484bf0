//! Tells libsqlite3-sys where the headers are: those of AWS-LC, and after them `evp_mac.h`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=include");
    let headers = aws_lc_headers().ok_or("aws-lc-sys does not say where its headers are")?.join("openssl");
    let include = PathBuf::from(env::var("OUT_DIR")?).join("include");
    let target = include.join("openssl");
    fs::create_dir_all(&target)?;
    for header in fs::read_dir(&headers)? {
        let header = header?;
        if header.file_type()?.is_file() {
            fs::write(target.join(header.file_name()), fs::read(header.path())?)?;
        }
    }
    append(&target.join("evp.h"), "#include <openssl/evp_mac.h>\n")?;
    fs::copy("include/evp_mac.h", target.join("evp_mac.h"))?;
    println!("cargo::metadata=include={}", include.display());
    Ok(())
}

/// The include folder of aws-lc-sys. The name of its variable contains the version.
fn aws_lc_headers() -> Option<PathBuf> {
    let is_include = |name: &str| name.starts_with("DEP_AWS_LC_") && name.ends_with("_INCLUDE");
    let (_, folder) = env::vars_os().find(|(name, _)| name.to_str().is_some_and(is_include))?;
    Some(PathBuf::from(folder))
}

fn append(file: &Path, text: &str) -> std::io::Result<()> {
    let content = fs::read_to_string(file)?;
    fs::write(file, content + text)
}
