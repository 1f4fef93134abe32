//! What a model knows about each block of the trace.

/// Values by dense block index; absent until set, and after they were taken.
#[derive(Debug)]
pub(super) struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Table<T> {
    pub(super) fn set(&mut self, block: u32, value: T) {
        let slot = block as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(value);
    }

    pub(super) fn get(&self, block: u32) -> Option<&T> {
        self.0.get(block as usize)?.as_ref()
    }

    pub(super) fn take(&mut self, block: u32) -> Option<T> {
        self.0.get_mut(block as usize)?.take()
    }
}
