//! Random operations on the index and on the model, with weights drawn anew for every swarm.

use super::swarm::{Draw, OPS, Swarm, driven};

const OPS_IN_SWARM: u64 = 1_000;

fn swarm(seed: u64, ops: u64) {
    let mut draw = Draw::Seed(seed);
    let weights = OPS.map(|(_, weight)| weight * draw.pick(&[0, 1, 1, 2, 8]));
    let unit = draw.pick(&[1, 1, 7, 256]);
    let mut swarm = Swarm::new(draw, unit);
    let sum: u64 = weights.iter().sum::<u64>().max(1);
    for done in 0..ops {
        let mut ticket = swarm.draw.below(sum);
        let chosen = weights.iter().position(|weight| {
            let here = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            here
        });
        OPS[chosen.unwrap_or(0)].0(&mut swarm);
        swarm.pair.ranges.check().unwrap();
        if done % 4 == 0 {
            swarm.pair.assert_sound();
        }
    }
    swarm.pair.finish();
}

#[test]
fn random_operations_leave_the_index_equal_to_the_naive_model() {
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = env("TERRANE_RANGE_SEED").unwrap_or(now.as_nanos() as u64);
    let ops = env("TERRANE_RANGE_OPS").unwrap_or(100_000);
    let mut draw = Draw::Seed(seed);
    for at in 0..ops.div_ceil(OPS_IN_SWARM) {
        let seed = if at == 0 { seed } else { draw.next() };
        println!(
            "TERRANE_RANGE_SEED={seed} TERRANE_RANGE_OPS={OPS_IN_SWARM} \
             cargo test -p terrane-core random_operations_leave_the_index"
        );
        swarm(seed, OPS_IN_SWARM);
    }
}

/// As the fuzz target `range` has it: tests/tests/kept.rs tries its inputs.
#[test]
fn operations_drawn_from_bytes_leave_the_index_equal_to_the_naive_model() {
    let mut draw = Draw::Seed(1);
    for length in [0, 1, 2, 1000] {
        let bytes: Vec<u8> = (0..length).map(|_| draw.next() as u8).collect();
        driven(&bytes);
    }
}
