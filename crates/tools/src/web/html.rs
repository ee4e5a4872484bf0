//! Converts a web page to plain text: what a reader would see, with the addresses of links. Implements no more of HTML than
//! it takes to tell tags from text, runs in one pass, and never produces more bytes than the page has, links aside.

/// Elements whose content is not shown.
const UNSEEN: [&str; 7] = ["script", "style", "template", "noscript", "svg", "iframe", "title"];

/// Elements that begin a new line.
const BLOCKS: [&str; 31] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
    "ul",
];

/// Maximum bytes shown of a link's address.
const MAX_HREF_BYTES: usize = 512;

/// Maximum bytes of a tag; a quote that stays open for longer counts as a mistake.
const MAX_TAG_BYTES: usize = 1024;

/// Maximum bytes of a character reference, `&` and `;` included.
const MAX_REFERENCE_BYTES: usize = 12;

/// Converts a page to text.
pub(crate) fn text(page: &str) -> String {
    let mut out = Out::default();
    if let Some(title) = element(page, "title") {
        out.text(title);
        out.line();
    }
    // There is no tag behind the last bracket, so the search for the end of a tag always finds one.
    let (mut rest, end) = page.split_at(page.rfind('>').map_or(0, |at| at + 1));
    let mut links = Vec::new();
    while let Some(at) = rest.find('<') {
        out.text(&rest[..at]);
        rest = &rest[at..];
        let Some(tag) = Tag::at(rest) else {
            out.text("<");
            rest = &rest[1..];
            continue;
        };
        rest = &rest[tag.len..];
        if tag.name.is_empty() {
            continue;
        }
        if !tag.closes && UNSEEN.contains(&tag.name.as_str()) {
            rest = behind(rest, &tag.name);
            continue;
        }
        match (tag.name.as_str(), tag.closes) {
            ("a", false) => links.push(tag.href),
            ("a", true) => {
                if let Some(Some(href)) = links.pop() {
                    out.text(&format!(" [{href}]"));
                }
            }
            (name, _) if BLOCKS.contains(&name) => out.line(),
            ("td" | "th", _) => out.text(" "),
            _ => {}
        }
        // Some pages never close their links.
        links.truncate(8);
    }
    out.text(rest);
    out.text(end);
    out.text.truncate(out.text.trim_end().len());
    out.text
}

/// The output text, with white space collapsed.
#[derive(Debug, Default)]
struct Out {
    text: String,
    space: bool,
}

impl Out {
    fn text(&mut self, mut raw: &str) {
        while let Some(character) = raw.chars().next() {
            let (character, len) = match character {
                '&' => reference(raw).unwrap_or(('&', 1)),
                character => (character, character.len_utf8()),
            };
            raw = &raw[len..];
            if character.is_whitespace() || character.is_control() {
                self.space = true;
                continue;
            }
            if std::mem::take(&mut self.space) && !self.text.is_empty() && !self.text.ends_with('\n') {
                self.text.push(' ');
            }
            self.text.push(character);
        }
    }

    fn line(&mut self) {
        self.space = false;
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }
}

/// A tag. A comment or declaration has no name.
#[derive(Debug, Default)]
struct Tag {
    /// In lowercase.
    name: String,
    closes: bool,
    href: Option<String>,
    len: usize,
}

impl Tag {
    /// The tag that `text` begins with, if it begins with one that has an end.
    fn at(text: &str) -> Option<Self> {
        if text.starts_with("<!--") {
            return Some(Self { len: text.find("-->").map_or(text.len(), |at| at + 3), ..Self::default() });
        }
        let closes = text.starts_with("</");
        let name_at = if closes { 2 } else { 1 };
        let first = text[name_at..].chars().next()?;
        if !first.is_ascii_alphabetic() && !matches!(first, '!' | '?') {
            return None;
        }
        let len = end_of_tag(text)?;
        if !first.is_ascii_alphabetic() {
            return Some(Self { len, ..Self::default() });
        }
        let inside = &text[name_at..len - 1];
        let (name, attributes) = inside.split_at(
            inside
                .find(|character: char| character.is_whitespace() || character == '/')
                .unwrap_or(inside.len()),
        );
        let name = name.to_ascii_lowercase();
        let href = if name == "a" { href(attributes) } else { None };
        Some(Self { name, closes, href, len })
    }
}

/// Where the tag at the beginning of `text` ends: a `>` outside quotes.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().take(MAX_TAG_BYTES).enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    // A stray quote is more likely than a tag to the end of the page.
    text.find('>').map(|at| at + 1)
}

fn href(attributes: &str) -> Option<String> {
    let lower = attributes.to_ascii_lowercase();
    let value = attributes[lower.find("href")? + 4..].trim_start().strip_prefix('=')?.trim_start();
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        _ => value.split_whitespace().next()?,
    };
    let is_link = !value.is_empty()
        && !value.starts_with('#')
        && !value.to_ascii_lowercase().starts_with("javascript:");
    (is_link && value.len() <= MAX_HREF_BYTES).then(|| value.to_owned())
}

/// The text behind the end of an element.
fn behind<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = &rest[at..];
        if starts_with(&rest[2..], name) {
            return rest.find('>').map_or("", |at| &rest[at + 1..]);
        }
        rest = &rest[2..];
    }
    ""
}

/// The content of the first element of this name.
fn element<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if starts_with(rest, name) {
            let content = &rest[rest.find('>')? + 1..];
            return content.split('<').next();
        }
    }
    None
}

fn starts_with(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
}

/// The character of a reference such as `&amp;` or `&#228;` at the beginning of `text`, and the reference's length.
fn reference(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(MAX_REFERENCE_BYTES).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "copy" => '©',
        "laquo" => '«',
        "raquo" => '»',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "bull" => '•',
        "middot" => '·',
        "euro" => '€',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    };
    Some((character, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_its_visible_text() {
        let page = "<!doctype html><html><head><title>Über &amp; unter</title><style>p{}</style></head>\
            <body><!-- <p>hidden</p> --><h1>Head\n  line</h1><p>One <b>bold</b> word &#8211; &#x41;&bogus; &lt;b&gt;\
            <script>if (a < b) { \"</p>\" }</script><br>two</p>\
            <ul><li><a href=\"/x?a=1\" title='a > b'>link</a><li><A HREF=y>other</A> <a href='#top'>up</a></ul>\
            a < b <table><tr><td>1</td><td>2</td></tr></table></body></html>";
        assert_eq!(
            text(page),
            "Über & unter\n\nHead line\n\nOne bold word – A&bogus; <b>\ntwo\n\nlink [/x?a=1]\nother [y] up\na < b\n\n1 2"
        );
    }

    #[test]
    fn broken_pages_end() {
        for page in [
            "<",
            "</",
            "<!--",
            "<a",
            "<a href=\"",
            "<script>",
            "&",
            "&#99999999999;",
            "&#xD800;",
            "<a href",
            "<\u{e4}",
        ] {
            text(page);
        }
        assert_eq!(text("1 <2 & 3"), "1 <2 & 3");
        assert_eq!(text("<p title=\"odd>x</p>y"), "x\ny");
        for page in
            ["<".repeat(200_000), "<a \"".repeat(100_000), "</".repeat(100_000), "<svg>".repeat(50_000)]
        {
            assert!(text(&page).len() <= page.len());
        }
    }
}
