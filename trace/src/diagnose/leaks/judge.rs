//! From curves to a verdict.
//!
//! The start of every curve is left out as warm-up. A curve is taken by its lower envelope (at
//! each step the least of it and all that follow), so that a cache that is emptied now and then
//! does not count as growth. Of the envelope, the growth in each third decides:
//! - it grows in every third, and the curve never falls far: *accumulating*;
//! - and each third grows by a multiple of the one before: *exponential*;
//! - it grew, and not in the last third: *plateau*.
//!
//! Where nothing grows, blocks that come and stay some steps can still hold segments that are
//! otherwise empty: *fragmenting*.

use super::curves::{By, Curves, Kept, warm_up};
use super::{LeakClass, Verdict};

/// Fewer steps say nothing.
const STEPS_MIN: usize = 8;
/// Growth below this share of the peak, or this many bytes, is no leak that matters.
const GROWTH_SHARE_MIN: f64 = 0.004;
const GROWTH_BYTES_MIN: f64 = 65_536.0;
/// Each third must have this share of the growth, at least.
const THIRD_SHARE_MIN: f64 = 0.12;
/// Growth of one third over that of the one before, from here on exponential.
const EXPONENTIAL_RATIO_MIN: f64 = 3.0;
/// Falls of an exponential curve, as a share of its growth, at most.
const FALL_SHARE_MAX: f64 = 0.3;
/// What is held empty over what holds it, from here on fragmenting,
const EMPTY_RATIO_MIN: f64 = 4.0;
/// and over the peak.
const EMPTY_SHARE_MIN: f64 = 0.15;
/// Growth that has stopped counts as a plateau from this share of the peak on.
const PLATEAU_SHARE_MIN: f64 = 0.02;

/// Shape of one curve after warm-up.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Growth of the lower envelope.
    growth: f64,
    /// The part of it in each third.
    thirds: [f64; 3],
    /// Largest fall of the curve itself.
    fall: f64,
}

impl Shape {
    fn of(curve: &[f64]) -> Self {
        let start = warm_up(curve.len());
        let judged = &curve[start.min(curve.len())..];
        let mut envelope = judged.to_vec();
        for at in (1..envelope.len()).rev() {
            envelope[at - 1] = envelope[at - 1].min(envelope[at]);
        }
        let at = |part: usize| {
            let last = envelope.len().saturating_sub(1);
            envelope.get(last * part / 3).copied().unwrap_or(0.0)
        };
        let thirds = [at(1) - at(0), at(2) - at(1), at(3) - at(2)];
        let (mut high, mut fall) = (0.0f64, 0.0f64);
        for value in judged {
            high = high.max(*value);
            fall = fall.max(high - value);
        }
        Self { growth: thirds.iter().sum(), thirds, fall }
    }

    fn is_steady(&self) -> bool {
        self.thirds.iter().all(|third| *third >= THIRD_SHARE_MIN * self.growth)
    }

    fn is_exponential(&self) -> bool {
        let [first, second, third] = self.thirds;
        let multiplies = first > 0.0
            && second >= EXPONENTIAL_RATIO_MIN * first
            && third >= EXPONENTIAL_RATIO_MIN * second;
        multiplies && self.fall <= FALL_SHARE_MAX * self.growth
    }
}

/// The verdict on all curves together: that of the site that grows most.
pub(super) fn judge(curves: &Curves) -> Verdict {
    let verdict = |class, site| Verdict {
        class,
        site,
        bytes_per_step: 0.0,
        first_step: None,
        confidence: 0.0,
        steps: curves.steps as u64,
        steps_needed: None,
        step_source: curves.source,
    };
    if curves.steps < STEPS_MIN {
        let steps_needed = Some(STEPS_MIN as u64);
        return Verdict { steps_needed, ..verdict(LeakClass::Unknown, None) };
    }
    let floor = (GROWTH_SHARE_MIN * curves.peak).max(GROWTH_BYTES_MIN);
    if let Some((class, key, shape)) = worst(curves, floor) {
        return with_numbers(verdict(class, Some(key.site)), &shape, curves, &curves.kept[&key]);
    }
    let pending = Shape::of(&curves.pending);
    if pending.is_steady() && pending.growth >= floor {
        let backlog = verdict(LeakClass::PendingBacklog, None);
        return with_numbers(backlog, &pending, curves, &curves.pending);
    }
    let class = if fragments(curves) {
        LeakClass::Fragmenting
    } else if has_stopped(curves) {
        LeakClass::Plateau
    } else {
        LeakClass::None
    };
    let site = match class {
        LeakClass::Fragmenting => {
            let sites = curves.late_by_site.iter();
            sites.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).map(|(site, _)| *site)
        }
        _ => None,
    };
    Verdict { confidence: confidence(curves.steps, 0.0), ..verdict(class, site) }
}

/// The curve that grows most; one that grows by multiples before any other.
fn worst(curves: &Curves, floor: f64) -> Option<(LeakClass, Kept, Shape)> {
    let growing = curves.kept.iter().filter_map(|(key, curve)| {
        let shape = Shape::of(curve);
        let class = growing(&shape).filter(|_| shape.growth >= floor)?;
        Some((class, *key, shape))
    });
    growing.max_by(|a, b| {
        let exponential = |found: &(LeakClass, Kept, Shape)| found.0 == LeakClass::Exponential;
        let by_growth = a.2.growth.total_cmp(&b.2.growth);
        exponential(a).cmp(&exponential(b)).then(by_growth).then(b.1.cmp(&a.1))
    })
}

/// True when, in the last third, blocks that stay some steps hold several times their own bytes
/// empty, and that is much of the peak.
fn fragments(curves: &Curves) -> bool {
    let mean = |curve: &[f64]| {
        let last = &curve[curve.len() * 2 / 3..];
        last.iter().sum::<f64>() / last.len().max(1) as f64
    };
    let (late, held) = (mean(&curves.late), mean(&curves.held_empty));
    late > 0.0 && held >= EMPTY_RATIO_MIN * late && held >= EMPTY_SHARE_MIN * curves.peak
}

/// True when the sum of all curves grew and did not in its last third.
fn has_stopped(curves: &Curves) -> bool {
    let mut total = vec![0.0; curves.pending.len()];
    for (_, curve) in curves.kept.iter().filter(|(key, _)| key.by == By::Least) {
        for (sum, value) in total.iter_mut().zip(curve) {
            *sum += value;
        }
    }
    let Shape { growth, thirds, .. } = Shape::of(&total);
    growth >= PLATEAU_SHARE_MIN * curves.peak && thirds[2] < THIRD_SHARE_MIN * growth
}

fn growing(shape: &Shape) -> Option<LeakClass> {
    if shape.is_exponential() {
        Some(LeakClass::Exponential)
    } else if shape.is_steady() && shape.fall <= shape.growth {
        Some(LeakClass::Accumulating)
    } else {
        None
    }
}

fn with_numbers(verdict: Verdict, shape: &Shape, curves: &Curves, curve: &[f64]) -> Verdict {
    let judged = curve.len().saturating_sub(warm_up(curve.len()) + 1).max(1) * curves.stride;
    let first = curve.iter().position(|value| *value > 0.0);
    Verdict {
        bytes_per_step: shape.growth / judged as f64,
        first_step: first.map(|at| (at * curves.stride) as u64),
        confidence: confidence(curves.steps, shape.fall / shape.growth.max(1.0)),
        ..verdict
    }
}

/// Falls of the curve and a small number of steps both take from it.
fn confidence(steps: usize, fall: f64) -> f64 {
    let enough = (steps as f64 / (3 * STEPS_MIN) as f64).min(1.0);
    (enough.sqrt() * (1.0 - fall.min(1.0) / 2.0)).clamp(0.0, 1.0)
}
