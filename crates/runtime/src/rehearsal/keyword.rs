//! The names of the commands, and the form of each.

macro_rules! keywords {
    ($($variant:ident $word:literal $form:literal),+ $(,)?) => {
        /// The word that begins a command.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Keyword { $($variant),+ }

        impl Keyword {
            pub(super) const WORDS: &'static [&'static str] = &[$($word),+];

            pub(super) fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// An example that a message can show.
            pub(super) const fn form(self) -> &'static str {
                match self { $(Self::$variant => $form),+ }
            }
        }
    };
}

keywords! {
    Say "say" "say TEXT",
    Think "think" "think TEXT",
    Slowly "slowly" "slowly 20ms TEXT",
    Call "call" "call TOOL JSON",
    Arguments "arguments" "arguments TOOL JSON",
    Expect "expect" "expect ok",
    Together "together" "together",
    Repeat "repeat" "repeat TIMES",
    End "end" "end",
    Wait "wait" "wait 200ms",
    Flood "flood" "flood DELTAS BYTES",
    Ask "ask" "ask QUESTION",
    Usage "usage" "usage IN OUT",
    Stop "stop" "stop end_turn",
    Fail "fail" "fail CODE MESSAGE",
    Hang "hang" "hang",
    Deaf "deaf" "deaf",
    Panic "panic" "panic TEXT",
}
