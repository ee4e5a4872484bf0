//! Reads redirections and the bodies of here-documents.

use std::collections::BTreeSet;

use super::reader::{ShellReader, is_meta};
use super::{CommandSyntaxError, Redirection, ShellWord, SimpleCommand, Structure};

/// A here-document whose body is still to come.
pub(super) struct HereDocument {
    delimiter: String,
    /// Whether the body is literal: the delimiter was quoted.
    verbatim: bool,
    /// `<<-` removes leading tabs.
    tabs: bool,
}

/// Longer operators before their prefixes.
const OPERATORS: [&str; 12] = ["&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">"];

impl ShellReader<'_> {
    /// The redirection that begins here, if any.
    pub(super) fn redirection(&mut self) -> Result<Option<Redirection>, CommandSyntaxError> {
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let after = rest.get(digits..).unwrap_or_default();
        if after.starts_with("<(") || after.starts_with(">(") {
            return if digits == 0 { Ok(None) } else { self.fail("a number stands before `<(`") };
        }
        let Some(operator) = OPERATORS.into_iter().find(|operator| after.starts_with(operator)) else {
            return Ok(None);
        };
        if digits > 0 && operator.starts_with('&') {
            return Ok(None);
        }
        let Ok(descriptor) =
            rest.get(..digits).filter(|digits| !digits.is_empty()).map(str::parse).transpose()
        else {
            return self.fail("the number of a descriptor is too large");
        };
        self.at += digits + operator.len();
        while self.eat(" ") || self.eat("\t") {}
        let start = self.at;
        let target = self.word()?;
        match operator {
            "<<" | "<<-" => self.announce(operator, start, &target)?,
            "<<<" => self.note(Structure::HereString),
            _ => {}
        }
        let redirection = Redirection { descriptor, operator, target };
        if !redirection.is_harmless() {
            self.note(Structure::Redirection);
        }
        Ok(Some(redirection))
    }

    fn announce(
        &mut self,
        operator: &str,
        start: usize,
        target: &ShellWord,
    ) -> Result<(), CommandSyntaxError> {
        self.note(Structure::HereDocument);
        let written = self.text.get(start..self.at).unwrap_or_default();
        if !target.literal || target.text.is_empty() || written.contains('\n') || written.contains(is_meta) {
            return self.fail("the delimiter of a here-document is no plain word");
        }
        let (delimiter, verbatim) = (target.text.clone(), !target.bare);
        self.pending.push(HereDocument { delimiter, verbatim, tabs: operator == "<<-" });
        Ok(())
    }

    /// The newline that ends a line of commands, and the here-documents after it.
    pub(super) fn newline(&mut self) -> Result<bool, CommandSyntaxError> {
        if !self.eat("\n") {
            return Ok(false);
        }
        for document in std::mem::take(&mut self.pending) {
            self.body(&document)?;
        }
        Ok(true)
    }

    /// The body is cut out before anything in it is read, as in shells: an expansion cannot reach past the
    /// delimiter.
    fn body(&mut self, document: &HereDocument) -> Result<(), CommandSyntaxError> {
        let start = self.at;
        let body = loop {
            let line = self.rest().split('\n').next().unwrap_or_default();
            let compared = if document.tabs { line.trim_start_matches('\t') } else { line };
            if compared == document.delimiter {
                let body = self.text.get(start..self.at).unwrap_or_default();
                self.at += line.len();
                self.eat("\n");
                break body;
            }
            self.at += line.len();
            if !self.eat("\n") {
                return self.fail("a here-document is not closed");
            }
        };
        if document.verbatim {
            return Ok(());
        }
        if body.contains("\\\n") {
            return self.fail("a line of a here-document ends with a backslash");
        }
        let (commands, structures) = self.deeper(|reader| ShellReader::new(body, reader.depth).document())?;
        self.commands.extend(commands);
        self.structures.extend(structures);
        Ok(())
    }

    /// The whole text as the body of a here-document.
    fn document(mut self) -> Result<(Vec<SimpleCommand>, BTreeSet<Structure>), CommandSyntaxError> {
        let mut ignored = ShellWord { text: String::new(), literal: true, bare: true };
        while let Some(c) = self.peek() {
            self.quoted_piece(c, &mut ignored)?;
        }
        Ok((self.commands, self.structures))
    }
}
