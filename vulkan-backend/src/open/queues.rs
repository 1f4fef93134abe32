//! Which queues to ask a device for. A pure function of its queue families.

use ash::vk;

/// The most queues that ordinary streams are spread over.
const ORDINARY: u32 = 4;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Streams without special wishes.
    Ordinary,
    /// Streams that ask for high priority.
    HighPriority,
    /// Streams that only copy.
    CopyOnly,
    /// Binding pages.
    Paging,
}

impl Role {
    /// What happens without a queue of this role.
    pub const fn without(self) -> &'static str {
        match self {
            Self::Ordinary => "nothing works: one queue that can compute is needed",
            Self::HighPriority => "streams of high priority share the ordinary queues",
            Self::CopyOnly => "streams that only copy share the ordinary queues",
            Self::Paging => "pages are bound on an ordinary queue, or not at all",
        }
    }
}

/// A queue to create with the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WantedQueue {
    /// The queue family.
    pub family: u32,
    /// The queue's number in its family.
    pub index: u32,
    /// 0.0 to 1.0.
    pub priority: f32,
    /// What it is for.
    pub role: Role,
}

/// The queues to create, best use first: ordinary ones, high priority, copying, paging.
///
/// An ordinary queue that can bind pages does so when no queue of its own is left for that.
pub fn plan(families: &[vk::QueueFamilyProperties], can_page: bool) -> Vec<WantedQueue> {
    let Some(general) = general(families) else { return Vec::new() };
    let sparse = |f: usize| families[f].queue_flags.contains(vk::QueueFlags::SPARSE_BINDING);
    let queue = |family: usize, index: u32, priority: f32, role: Role| WantedQueue {
        family: family as u32,
        index,
        priority,
        role,
    };
    let count = families[general].queue_count;
    // A queue each for paging and high priority where there are enough; never fewer than one
    // ordinary queue.
    let spare = count.saturating_sub(1).min(2);
    let ordinary = (count - spare).min(ORDINARY);
    let mut plan: Vec<_> = (0..ordinary).map(|i| queue(general, i, 0.5, Role::Ordinary)).collect();
    if spare >= 1 {
        plan.push(queue(general, ordinary, 1.0, Role::HighPriority));
    }
    let copying = (0..families.len()).find(|f| copies_only(families[*f].queue_flags));
    if let Some(family) = copying.filter(|f| families[*f].queue_count > 0) {
        plan.push(queue(family, 0, 0.5, Role::CopyOnly));
    }
    if can_page {
        if spare >= 2 && sparse(general) {
            plan.push(queue(general, ordinary + 1, 0.5, Role::Paging));
        } else if !sparse(general) {
            let used = |f: usize| u32::from(Some(f) == copying);
            let other =
                (0..families.len()).find(|f| sparse(*f) && families[*f].queue_count > used(*f));
            plan.extend(other.map(|f| queue(f, used(f), 0.5, Role::Paging)));
        }
    }
    plan
}

/// The family for ordinary work: it computes, and draws too where there is one that does both,
/// since a program's own work is likely there.
fn general(families: &[vk::QueueFamilyProperties]) -> Option<usize> {
    let can = |flags: vk::QueueFlags| {
        families.iter().position(|f| f.queue_count > 0 && f.queue_flags.contains(flags))
    };
    can(vk::QueueFlags::COMPUTE | vk::QueueFlags::GRAPHICS).or_else(|| can(vk::QueueFlags::COMPUTE))
}

fn copies_only(flags: vk::QueueFlags) -> bool {
    flags.contains(vk::QueueFlags::TRANSFER)
        && !flags.intersects(
            vk::QueueFlags::COMPUTE
                | vk::QueueFlags::GRAPHICS
                | vk::QueueFlags::VIDEO_DECODE_KHR
                | vk::QueueFlags::VIDEO_ENCODE_KHR
                | vk::QueueFlags::OPTICAL_FLOW_NV,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(flags: vk::QueueFlags, queues: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties { queue_flags: flags, queue_count: queues, ..Default::default() }
    }

    const ALL: vk::QueueFlags = vk::QueueFlags::from_raw(0b1111);
    const COPY: vk::QueueFlags = vk::QueueFlags::from_raw(0b1100);

    #[test]
    fn a_device_with_many_queues_gives_every_role_its_own() {
        let plan = plan(&[family(ALL, 16), family(COPY, 2)], true);
        let roles: Vec<_> = plan.iter().map(|q| q.role).collect();
        assert_eq!(roles[..4], [Role::Ordinary; 4]);
        assert_eq!(roles[4..], [Role::HighPriority, Role::CopyOnly, Role::Paging]);
        let mut places: Vec<_> = plan.iter().map(|q| (q.family, q.index)).collect();
        places.dedup();
        assert_eq!(places.len(), plan.len());
        assert!(plan.iter().all(|q| q.index < [16, 2][q.family as usize]));
    }

    #[test]
    fn a_device_with_one_queue_shares_it() {
        let plan = plan(&[family(ALL, 1)], true);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].role, Role::Ordinary);
    }

    #[test]
    fn pages_are_bound_on_another_family_where_the_general_one_can_not() {
        let general = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let plan = plan(&[family(general, 1), family(COPY, 2)], true);
        assert_eq!(plan[2], WantedQueue { family: 1, index: 1, priority: 0.5, role: Role::Paging });
    }

    #[test]
    fn a_device_that_can_not_compute_gets_no_queue() {
        assert!(plan(&[family(COPY, 2)], true).is_empty());
    }
}
