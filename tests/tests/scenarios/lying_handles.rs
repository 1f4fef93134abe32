//! Case 14: handles that name nothing.

use super::*;

#[test]
fn case_14_every_lying_handle_is_a_typed_error_and_memory_is_untouched() {
    let rig = Rig::new(1 << 30);
    let other = Rig::new(1 << 30);
    let s0 = rig.stream();
    let block = rig.get(U, s0);
    assert_eq!(other.alloc.free(block), Err(Error::ForeignHandle));
    assert_eq!(other.alloc.pin(block).err(), Some(Error::ForeignHandle));

    rig.alloc.free(block).unwrap();
    assert_eq!(rig.alloc.free(block), Err(Error::DoubleFree));
    assert_eq!(rig.alloc.pin(block).err(), Some(Error::UseAfterFree));
    assert_eq!(rig.alloc.submit(s0).resolve(block).err(), Some(Error::UseAfterFree));

    let next = rig.get(U, s0);
    assert_ne!(block, next, "a handle was given out twice");
    assert_eq!(rig.alloc.free(block), Err(Error::StaleHandle));
    assert_eq!(rig.alloc.info(block).err(), Some(Error::StaleHandle));
    assert_eq!(rig.alloc.info(next).unwrap().requested, U);

    let before = rig.alloc.stats();
    for lie in [block] {
        let _ = rig.alloc.free(lie);
        let _ = rig.alloc.grow(lie, 2 * U);
    }
    assert_eq!(rig.alloc.stats(), before);
    rig.assert_sound();
}

#[test]
fn case_14_a_handle_outlives_its_allocator_as_foreign() {
    let gone = {
        let rig = Rig::new(1 << 30);
        let s0 = rig.stream();
        let handle = rig.get(U, s0);
        let leaks = rig.alloc.clone().close().unwrap_err();
        assert_eq!((leaks.len(), leaks[0].bytes), (1, U));
        assert!(leaks[0].site.contains("main.rs"), "{}", leaks[0].site);
        handle
    };
    let rig = Rig::new(1 << 30);
    assert_eq!(rig.alloc.free(gone), Err(Error::ForeignHandle));
}

#[test]
fn case_14_a_freed_held_block_is_freed_when_the_hold_ends() {
    let rig = Rig::new(1 << 30);
    let s0 = rig.stream();
    let block = rig.get(U, s0);
    let pin = rig.alloc.pin(block).unwrap();
    rig.alloc.free(block).unwrap();
    assert_eq!(rig.alloc.free(block), Err(Error::DoubleFree));
    assert_eq!(rig.alloc.stats().total.blocks.current, 1);
    drop(pin);
    assert_eq!(rig.alloc.stats().total.blocks.current, 0);
    rig.assert_sound();
}
