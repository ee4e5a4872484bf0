//! Laws of the law: what must hold whatever the house wrote and whatever is called.

mod arbitrary;
mod laws;
