//! Checks patches that agents report against the two texts that they connect.

/// Whether a patch of one file leads from one text to the other. Indentation does not count: some agents remove the
/// common one.
pub(crate) fn leads(old: &str, new: &str, patch: &str) -> bool {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let (mut from, mut to) = (0, 0);
    let mut is_in_hunk = false;
    for line in patch.lines() {
        if let Some((left, right)) = hunk(line) {
            // The lines before a hunk are the same in both texts.
            if left < from || right < to || old.get(from..left) != new.get(to..right) {
                return false;
            }
            (from, to, is_in_hunk) = (left, right, true);
            continue;
        }
        let Some(sign) = line.chars().next().filter(|_| is_in_hunk) else { continue };
        let is =
            |lines: &[&str], at: usize| lines.get(at).is_some_and(|have| have.trim() == line[1..].trim());
        match sign {
            ' ' if is(&old, from) && is(&new, to) => (from, to) = (from + 1, to + 1),
            '-' if is(&old, from) => from += 1,
            '+' if is(&new, to) => to += 1,
            '\\' => {}
            _ => return false,
        }
    }
    is_in_hunk && old.get(from..) == new.get(to..)
}

/// How many lines stand before a hunk, on both sides: `@@ -3,2 +3,4 @@`.
fn hunk(line: &str) -> Option<(usize, usize)> {
    let (left, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let before = |range: &str| {
        let (first, count) = range.split_once(',').unwrap_or((range, "1"));
        let (first, count): (usize, usize) = (first.parse().ok()?, count.parse().ok()?);
        // An empty hunk is numbered by the line before it.
        Some(if count == 0 { first } else { first.checked_sub(1)? })
    };
    Some((before(left)?, before(rest.split_once(" @@")?.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_leads_where_it_says_and_nowhere_else() {
        let (old, new) = ("a\nb\nc\nd\n", "a\nB\nc\nd\ne\n");
        let whole = "--- x\n+++ x\n@@ -1,4 +1,5 @@\n a\n-b\n+B\n c\n d\n+e\n";
        assert!(leads(old, new, whole));
        assert!(leads(old, new, "@@ -2,1 +2,1 @@\n-b\n+B\n@@ -4,0 +5,1 @@\n+e\n"));
        assert!(leads("", "x", "@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n"));
        assert!(leads("x\n", "", "@@ -1,1 +0,0 @@\n-x\n"));
        assert!(leads("    a\n    b\n", "    a\n    c\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"));
        for (why, new, patch) in [
            ("another text", "a\nX\nc\nd\ne\n", whole),
            ("more than it says", "a\nB\nc\nd\ne\nf\n", whole),
            ("less than it is", new, "@@ -2,1 +2,1 @@\n-b\n+B\n"),
            ("a line that is not there", new, "@@ -1,1 +1,1 @@\n-z\n+a\n"),
            ("no patch", new, "b is B now"),
            ("nothing", new, ""),
            ("a place that is not there", new, "@@ -90,1 +90,1 @@\n-b\n+B\n"),
        ] {
            assert!(!leads(old, new, patch), "{why}");
        }
    }
}
