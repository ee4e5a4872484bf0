//! Maps characters to the Latin letters that a reader takes them for: without case, accents, width and style, and
//! with look-alikes from other scripts. Every other character maps to nothing.

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use super::automaton::Letter;

/// The letters of a character: mostly one or none, several for a ligature.
pub(super) fn letters(c: char) -> impl Iterator<Item = Letter> {
    let mut found = CharBuffer::default();
    if c.is_ascii() {
        found.extend(latin(c));
    } else if let Some(letter) = styled(c) {
        found.extend(Some(letter));
    } else {
        decompose_compatible(c, |part| found.extend(latin(part).or_else(|| lookalike(part))));
    }
    found.letters.into_iter().take(found.count)
}

/// Room for more letters than any character stands for, except for some words in circles and squares.
#[derive(Default)]
struct CharBuffer {
    letters: [Letter; 8],
    count: usize,
}

impl CharBuffer {
    fn extend(&mut self, letter: Option<Letter>) {
        if let (Some(letter), Some(place)) = (letter, self.letters.get_mut(self.count)) {
            *place = letter;
            self.count += 1;
        }
    }
}

fn latin(c: char) -> Option<Letter> {
    c.is_ascii_alphabetic().then(|| c.to_ascii_lowercase() as u8 - b'a')
}

/// Alphabets of styled Latin letters that have no compatibility decomposition in Unicode.
fn styled(c: char) -> Option<Letter> {
    let nth = |first: u32| Some((u32::from(c) - first) as Letter);
    match c {
        '\u{1F150}'..='\u{1F169}' => nth(0x1F150),
        '\u{1F170}'..='\u{1F189}' => nth(0x1F170),
        '\u{1F1E6}'..='\u{1F1FF}' => nth(0x1F1E6),
        // Invisible, but some programs read them.
        '\u{E0041}'..='\u{E005A}' => nth(0xE0041),
        '\u{E0061}'..='\u{E007A}' => nth(0xE0061),
        _ => None,
    }
}

/// The Latin letter that a letter of another script looks like.
fn lookalike(c: char) -> Option<Letter> {
    if !c.is_alphabetic() || is_combining_mark(c) {
        return None;
    }
    let mut utf8 = [0; 4];
    let mut shape =
        unicode_security::skeleton(c.encode_utf8(&mut utf8)).filter(|part| !is_combining_mark(*part));
    let (first, second) = (shape.next(), shape.next());
    match (first, second) {
        // The tables map an `m` to two letters.
        (Some('r'), Some('n')) => latin('m'),
        // The tables map a capital I to an l; its lowercase form distinguishes them.
        (Some('l'), _) if c.is_uppercase() => lookalike(c.to_lowercase().next()?),
        (Some(first), _) => latin(first).or_else(|| small_capital(first)),
        (None, _) => None,
    }
}

fn small_capital(c: char) -> Option<Letter> {
    let looks_like = match c {
        'ᴀ' => 'a',
        'ʙ' | 'в' => 'b',
        'ᴅ' => 'd',
        'ᴇ' => 'e',
        'ꜰ' => 'f',
        'ɢ' => 'g',
        'ʜ' => 'h',
        'ɪ' => 'i',
        'ᴊ' => 'j',
        'ᴋ' | 'κ' => 'k',
        'ʟ' => 'l',
        'ᴍ' | 'м' => 'm',
        'ɴ' => 'n',
        'ᴘ' => 'p',
        'ʀ' => 'r',
        'ᴛ' | 'τ' => 't',
        'ᴜ' => 'u',
        'ʏ' => 'y',
        _ => return None,
    };
    latin(looks_like)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        text.chars().flat_map(letters).map(|letter| char::from(b'a' + letter)).collect()
    }

    #[test]
    fn characters_are_read_as_what_they_look_like() {
        for (text, wanted) in [
            ("Hello, World! 42", "helloworld"),
            ("Ｈｅｌｌｏ", "hello"),
            ("𝐇𝑒𝓁𝔩𝕠 𝖍𝚎", "hellohe"),
            ("Ⓗⓔⓛⓛⓞ", "hello"),
            ("🅗🅔🅛🅛🅞 🅷🅴 🇭🇪", "hellohehe"),
            ("héllö ñ ç e\u{301}", "hellonce"),
            ("ﬁne ﬄ ㎏", "fineffl kg".replace(' ', "").as_str()),
            ("Неllо раssроrt", "hellopassport"),
            ("Ιt ΗΑS", "ithas"),
            ("ʜᴇʟʟᴏ ᴛʜᴇʀᴇ", "hellothere"),
            ("h\u{200b}e\u{feff}l\u{ad}l\u{2060}o", "hello"),
            ("\u{E0068}\u{E0069}", "hi"),
            ("漢字 ひらがな 12 … 🙂", ""),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
    }
}
