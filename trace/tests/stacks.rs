//! Call stacks of some requests.

#![cfg(feature = "stacks")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;

use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::point::StreamId;
use terrane_core::{Allocation, Allocator, Request};
use terrane_trace::diagnose::{Moment, SiteBy, sites};
use terrane_trace::file::{Meta, Tap};
use terrane_trace::recording::open_recording;

#[inline(never)]
fn layer_of_weights(alloc: &Allocator, stream: StreamId) -> Allocation {
    alloc.alloc(&Request::new(1000, stream)).unwrap()
}

#[inline(never)]
fn model(alloc: &Allocator, stream: StreamId, layers: u32) -> Vec<Allocation> {
    (0..layers).map(|_| layer_of_weights(alloc, stream)).collect()
}

#[test]
fn every_fourth_request_has_its_stack_and_what_taking_it_cost() {
    let device = Sim::cuda().open().shared();
    let alloc = Allocator::new(device.clone()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let path = std::env::temp_dir().join(format!("terrane-stacks-{}", std::process::id()));
    let tap = Tap::new(&alloc, Meta::default()).file(&path).stacks(4);
    let recorder = tap.start().unwrap();
    let blocks = model(&alloc, stream, 100);
    recorder.finish().unwrap();
    // Nothing is taken any more.
    let before = alloc.stats().total.blocks.current;
    blocks.iter().for_each(|block| alloc.free(block.handle).unwrap());
    assert_eq!(before, 100);

    let recording = open_recording(&path, &mut |_| ControlFlow::Continue(())).unwrap();
    std::fs::remove_file(&path).unwrap();
    let taken = recording.stacks.unwrap();
    assert_eq!(taken.count, 25);
    assert!(taken.total_ns > 0);
    println!("{} ns each", taken.total_ns / taken.count);
    let history = recording.history(None).unwrap();
    let stacks =
        history.blocks.iter().map(|block| recording.snapshot.stack_lines(block.stack.unwrap()));
    let stacks: Vec<Vec<String>> = stacks.collect();
    assert_eq!(stacks.len(), 100);
    let deep: Vec<_> = stacks.iter().filter(|stack| stack.len() > 1).collect();
    assert_eq!(deep.len(), 25);
    for stack in deep {
        let named = |part: &str| stack.iter().position(|line| line.contains(part));
        assert_eq!(named("layer_of_weights"), Some(0), "innermost first: {stack:#?}");
        assert!(named("stacks::model").unwrap() > 0, "{stack:#?}");
    }
    // Whoever asks who holds memory sees them.
    let held = sites(&recording.snapshot, history, Moment::End, SiteBy::Stack);
    assert!(held.rows.iter().any(|row| row.site.contains("layer_of_weights")), "{held:?}");
}
