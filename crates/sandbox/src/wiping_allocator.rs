//! An allocator that overwrites memory with zeros before it is reused: what a process drops, it no longer knows.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};

/// Wipes every block when it is freed, and passes everything else on.
///
/// Covers Rust code only: the databases allocate by themselves, and hold sealed content. A block that is still in use, the
/// stack, and registers are not wiped.
#[derive(Debug)]
pub struct WipingAllocator<A>(pub A);

// SAFETY: allocation is the inner allocator's. A block is written within the size that it was requested with, and only when
// its owner gives it back.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has this many bytes, and its owner does not use it any more. The compiler must not remove a
        // write that nothing reads, which `explicit_bzero` ensures.
        unsafe {
            libc::explicit_bzero(block.cast(), layout.size());
            self.0.dealloc(block, layout);
        }
    }

    // Not the inner one's, which would free the old block unwiped.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives a size that is valid for this alignment. Both blocks have at least the copied bytes, and
        // do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// What freed blocks held.
        static FREED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    }

    /// Records what it gets back.
    struct Recorder;

    // SAFETY: everything is passed on to the system's allocator; a block is read before it is freed.
    unsafe impl GlobalAlloc for Recorder {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block has this many bytes.
            unsafe {
                let held = std::slice::from_raw_parts(block, layout.size()).to_vec();
                FREED.with_borrow_mut(|freed| freed.push(held));
                System.dealloc(block, layout);
            }
        }
    }

    #[test]
    fn freed_blocks_hold_nothing() {
        let allocator = WipingAllocator(Recorder);
        let layout = Layout::from_size_align(6, 1).unwrap();
        // SAFETY: each block is used within its size, and freed once with the layout that it has.
        let grown = unsafe {
            let block = allocator.alloc(layout);
            block.copy_from_nonoverlapping(b"secret".as_ptr(), 6);
            let grown = allocator.realloc(block, layout, 100);
            let text = std::slice::from_raw_parts(grown, 6).to_vec();
            allocator.dealloc(grown, Layout::from_size_align(100, 1).unwrap());
            text
        };
        assert_eq!(grown, b"secret");
        assert_eq!(FREED.take(), [vec![0; 6], vec![0; 100]]);
    }
}
