//! WGSL to SPIR-V by naga.

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy, Layouter};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, TypeInner};
use terrane_core::device::DeviceError;

const DOES_NOT_COMPILE: DeviceError = DeviceError::InvalidCall("the kernel does not compile");

/// A checked module.
pub struct Checked {
    pub module: Module,
    info: naga::valid::ModuleInfo,
    /// The least bytes of each binding, so that no access to its fixed part leaves it.
    pub least_bytes: Vec<u64>,
    pub push_bytes: u32,
}

/// Whether accesses are checked against the bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// Reads outside give zero and writes outside are dropped.
    Checked,
    /// For kernels of our own, which get all lengths as data.
    Trusted,
}

/// Parses and checks a module, and finds its bindings and push data.
pub fn check(text: &str, entry: &str, int64: bool) -> Result<Checked, DeviceError> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| {
        tracing::error!("{}", error.emit_to_string(text));
        DOES_NOT_COMPILE
    })?;
    inspect(module, entry, int64, text)
}

/// As [`check`], for a module that is parsed already.
pub fn inspect(
    module: Module,
    entry: &str,
    int64: bool,
    text: &str,
) -> Result<Checked, DeviceError> {
    let mut capabilities = Capabilities::IMMEDIATES;
    if int64 {
        capabilities |= Capabilities::SHADER_INT64;
    }
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    let info = validator.validate(&module).map_err(|error| {
        tracing::error!("{}", error.emit_to_string(text));
        DOES_NOT_COMPILE
    })?;
    let is_entry = |e: &naga::EntryPoint| e.name == entry && e.stage == ShaderStage::Compute;
    if !module.entry_points.iter().any(is_entry) {
        return Err(DeviceError::InvalidCall("the module has no such compute entry point"));
    }
    let least_bytes = bindings(&module)?;
    let push_bytes = push_bytes(&module)?;
    Ok(Checked { module, info, least_bytes, push_bytes })
}

/// The least bytes of bindings 0.. of group 0; nothing else may be bound.
fn bindings(module: &Module) -> Result<Vec<u64>, DeviceError> {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|_| DOES_NOT_COMPILE)?;
    let mut found = Vec::new();
    for (_, global) in module.global_variables.iter() {
        let Some(binding) = &global.binding else { continue };
        if binding.group != 0 || !matches!(global.space, AddressSpace::Storage { .. }) {
            return Err(DeviceError::InvalidCall("kernels bind storage buffers of group 0 only"));
        }
        let mut least = u64::from(layouter[global.ty].size);
        // A runtime-sized array counts as one element: of it, accesses are checked one by one.
        if let TypeInner::Array { stride, size: naga::ArraySize::Dynamic, .. } =
            module.types[global.ty].inner
        {
            least = least.max(u64::from(stride));
        }
        found.push((binding.binding, least));
    }
    found.sort_unstable();
    if found.iter().zip(0..).any(|((binding, _), i)| *binding != i) {
        return Err(DeviceError::InvalidCall("a kernel's bindings are not numbered from 0"));
    }
    Ok(found.into_iter().map(|(_, least)| least).collect())
}

fn push_bytes(module: &Module) -> Result<u32, DeviceError> {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|_| DOES_NOT_COMPILE)?;
    let immediate = |(_, g): (_, &naga::GlobalVariable)| {
        (g.space == AddressSpace::Immediate).then(|| layouter[g.ty].size)
    };
    let sizes: Vec<u32> = module.global_variables.iter().filter_map(immediate).collect();
    match sizes[..] {
        [] => Ok(0),
        [size] => Ok(size.next_multiple_of(4)),
        _ => Err(DeviceError::InvalidCall("a kernel has one immediate variable at most")),
    }
}

impl Checked {
    /// The module as SPIR-V with one entry point.
    pub fn words(&self, entry: &str, bounds: Bounds) -> Result<Vec<u32>, DeviceError> {
        let policy = match bounds {
            Bounds::Checked => BoundsCheckPolicy::ReadZeroSkipWrite,
            Bounds::Trusted => BoundsCheckPolicy::Unchecked,
        };
        let zero = match bounds {
            Bounds::Checked => spv::ZeroInitializeWorkgroupMemoryMode::Polyfill,
            Bounds::Trusted => spv::ZeroInitializeWorkgroupMemoryMode::None,
        };
        let options = spv::Options {
            lang_version: (1, 3),
            flags: spv::WriterFlags::empty(),
            bounds_check_policies: BoundsCheckPolicies {
                index: policy,
                buffer: policy,
                image_load: policy,
                binding_array: policy,
            },
            zero_initialize_workgroup_memory: zero,
            force_loop_bounding: bounds == Bounds::Checked,
            ..Default::default()
        };
        let pipeline = spv::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: entry.to_owned(),
        };
        spv::write_vec(&self.module, &self.info, &options, Some(&pipeline)).map_err(|error| {
            tracing::error!(%error, "naga writes no SPIR-V");
            DOES_NOT_COMPILE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Checked, DeviceError> {
        check(text, "main", false)
    }

    #[test]
    fn bindings_and_push_data_are_found_in_the_module() {
        let module = checked(
            "struct Head { n: u32, rest: array<vec4<u32>> }
             @group(0) @binding(1) var<storage, read_write> b: Head;
             @group(0) @binding(0) var<storage> a: array<u32, 10>;
             var<immediate> p: vec3<u32>;
             @compute @workgroup_size(1) fn main() { b.n = a[p.x]; }",
        )
        .unwrap();
        assert_eq!(module.least_bytes, [40, 32]);
        assert_eq!(module.push_bytes, 12);
        assert!(module.words("main", Bounds::Checked).unwrap().len() > 20);
    }

    #[test]
    fn what_is_no_kernel_of_ours_is_refused() {
        let body = "@compute @workgroup_size(1) fn main()";
        for text in [
            "nonsense".to_owned(),
            "@compute @workgroup_size(1) fn other() {}".to_owned(),
            format!("@group(1) @binding(0) var<storage> a: u32; {body} {{ _ = a; }}"),
            format!("@group(0) @binding(1) var<storage> a: u32; {body} {{ _ = a; }}"),
            format!("@group(0) @binding(0) var<uniform> a: u32; {body} {{ _ = a; }}"),
        ] {
            assert!(checked(&text).is_err(), "{text}");
        }
    }
}
