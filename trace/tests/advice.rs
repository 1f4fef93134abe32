//! Messages read alone, and settings searched.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use terrane_trace::diagnose::{Class, OutOfMemoryMessage, Requests, tune};
use terrane_trace::model::PytorchConfig;
use terrane_trace::{Limits, Trace, open_csv};

const RECENT: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 698.00 MiB. \
    GPU 0 has a total capacity of 139.80 GiB of which 117.73 GiB is free. 21.89 GiB allowed; \
    Of the allocated memory 17.84 GiB is allocated by PyTorch, and 3.61 GiB is reserved by \
    PyTorch but unallocated. If reserved but unallocated memory is large try setting";

#[test]
fn a_recent_message_gives_its_numbers_and_fragmentation() {
    let message = OutOfMemoryMessage::find(RECENT).unwrap();
    assert_eq!(message.asked, Some(698 << 20));
    assert_eq!(message.allowed.map(|bytes| bytes >> 20), Some(22_415));
    assert_eq!(message.device_free.map(|bytes| bytes >> 30), Some(117));
    assert_eq!(message.allocated.map(|bytes| bytes >> 30), Some(17));
    assert_eq!(message.unallocated.map(|bytes| bytes >> 30), Some(3));
    let verdict = message.verdict();
    assert_eq!((verdict.class, verdict.short_bytes), (Some(Class::Fragmentation), 0));
}

#[test]
fn numbers_decide_the_class_or_leave_it_open() {
    let class = |text: &str| OutOfMemoryMessage::find(text).unwrap().verdict().class;
    let text = |asked, total, free, own, allocated, unallocated| {
        format!(
            "Tried to allocate {asked}. GPU 0 has a total capacity of {total} of which {free} is \
             free. Including non-PyTorch memory, this process has {own} memory in use. Of the \
             allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved \
             by PyTorch but unallocated."
        )
    };
    let full = text("2.00 GiB", "24.00 GiB", "1.00 GiB", "23.00 GiB", "22.00 GiB", "500.00 MiB");
    assert_eq!(class(&full), Some(Class::Capacity));
    let shared = text("2.00 GiB", "24.00 GiB", "1.00 GiB", "11.00 GiB", "10.00 GiB", "500.00 MiB");
    assert_eq!(class(&shared), Some(Class::OtherProcess));
    let absurd = text("700.00 GiB", "24.00 GiB", "20.00 GiB", "4.00 GiB", "3.00 GiB", "1.00 GiB");
    assert_eq!(class(&absurd), Some(Class::AbsurdRequest));
    let limited = text("9.00 GiB", "24.00 GiB", "20.00 GiB", "4.00 GiB", "3.00 GiB", "1.00 GiB");
    let limited = limited.replace(" is free.", " is free. 8.00 GiB allowed;");
    assert_eq!(class(&limited), Some(Class::UserLimit));
    // Who holds what is missing is not told without the process's own use.
    let unknown = full.replace("this process has", "it has");
    assert_eq!(class(&unknown), Some(Class::Capacity));
    let odd = "Tried to allocate 1.50 TiB. GPU 0 has a total capacity of 80 furlongs";
    assert_eq!(OutOfMemoryMessage::find(odd).unwrap().asked, Some(3 << 39));
    assert_eq!(OutOfMemoryMessage::find(odd).unwrap().device_total, None);
    assert_eq!(class("CUDA out of memory. Tried to allocate 20.00 MiB"), None);
    assert_eq!(OutOfMemoryMessage::find("RuntimeError: something else"), None);
    assert_eq!(OutOfMemoryMessage::find("Tried to allocate lots").unwrap().asked, None);
}

fn read(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

#[test]
fn tuning_finds_the_setting_that_reserves_least_and_says_what_it_gives() {
    let tuned = tune(&Requests::of(read("bert_large_ckpt")), &PytorchConfig::default(), None);
    assert_eq!(tuned.before.peak_reserved, 9_787_408_384);
    assert!(tuned.helps && tuned.best.peak_reserved <= 8_441_036_800, "{tuned:?}");
    assert!(tuned.tried.iter().all(|t| t.peak_reserved >= tuned.best.peak_reserved));
    for tuning in &tuned.tried {
        let together = ["expandable", "max_split"].iter().all(|key| tuning.conf.contains(key));
        assert!(!together, "{}", tuning.conf);
    }
}

#[test]
fn where_no_setting_helps_it_says_so() {
    let trace = read("resnet50_amp");
    let short = trace.figures().peak_requested / 2;
    let tuned = tune(&Requests::of(trace), &PytorchConfig::default(), Some(short));
    assert!(tuned.best.failures > 0);
    assert!(!tuned.helps, "{:?} {:?}", tuned.before, tuned.best);
}
