//! The software driver's modules: PTX as text, of which it knows entry points and parameters.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::driver::{Launch, RawFunction, RawModule, code};

#[derive(Default)]
pub(crate) struct Modules {
    images: HashMap<u64, Vec<u8>>,
    /// Name and bytes of parameters.
    functions: HashMap<u64, (String, usize)>,
}

impl Modules {
    pub(crate) fn load(&mut self, id: u64, image: &[u8]) -> Result<RawModule, i32> {
        if image.last() != Some(&0) || !image.windows(8).any(|part| part == b".version") {
            return Err(218);
        }
        self.images.insert(id, image.to_vec());
        Ok(RawModule(id))
    }

    pub(crate) fn unload(&mut self, module: RawModule) -> Result<(), i32> {
        self.images.remove(&module.0).map(|_| ()).ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn function(
        &mut self,
        id: u64,
        module: RawModule,
        name: &str,
    ) -> Result<RawFunction, i32> {
        let image = self.images.get(&module.0);
        let params = image.and_then(|image| param_bytes(image, name)).ok_or(code::NOT_FOUND)?;
        self.functions.insert(id, (name.to_owned(), params));
        Ok(RawFunction(id))
    }

    /// The function's name, when it is there and takes that many bytes of parameters.
    pub(crate) fn launchable(&self, launch: &Launch<'_>) -> Result<String, i32> {
        let (name, wanted) = self.functions.get(&launch.function.0).ok_or(code::INVALID_HANDLE)?;
        match launch.params.len().cmp(wanted) {
            Ordering::Less => Err(code::INVALID_VALUE),
            Ordering::Equal => Ok(name.clone()),
            Ordering::Greater => Err(code::LAUNCH_OUT_OF_RESOURCES),
        }
    }
}

/// Bytes of the parameters that an entry point in PTX declares; `None` where it is not there.
fn param_bytes(image: &[u8], name: &str) -> Option<usize> {
    let text = String::from_utf8_lossy(image);
    let (_, rest) = text.split_once(&format!(".entry {name}("))?;
    let (list, _) = rest.split_once(')')?;
    let sizes = list.split(".param").skip(1).map(|param| match param.split_whitespace().next() {
        Some(".u64") => 8,
        Some(".u32") => 4,
        kind => panic!("a parameter of kind {kind:?}"),
    });
    Some(sizes.fold(0_usize, |end, size| end.next_multiple_of(size) + size))
}
