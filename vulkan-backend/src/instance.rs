//! The Vulkan instance: the loader, the layers and the messages of the validation layer.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::error::OpenError;

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

/// What the validation layer said.
#[derive(Default)]
pub struct Messages(Mutex<Vec<String>>);

impl Messages {
    fn push(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Messenger {
    fns: ash::ext::debug_utils::Instance,
    raw: vk::DebugUtilsMessengerEXT,
}

/// A Vulkan instance, destroyed with this unless a host program owns it.
pub struct Instance {
    // Keeps the loader's library open.
    _entry: ash::Entry,
    pub raw: ash::Instance,
    /// Whether object names can be set.
    pub debug_utils: bool,
    pub messages: Arc<Messages>,
    messenger: Option<Messenger>,
    owned: bool,
    /// The process that loaded it: a forked child leaves it alone.
    process: u32,
}

impl Instance {
    /// Loads the Vulkan loader and makes an instance of the newest version it has, up to 1.3.
    pub fn load(validation: bool) -> Result<Self, OpenError> {
        // SAFETY: the loader's initialisers are trusted like the rest of the Vulkan installation.
        let entry = unsafe { ash::Entry::load() }.map_err(|_| OpenError::NoLoader)?;
        let no_instance = |result: vk::Result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => OpenError::NoDriver,
            other => OpenError::NoInstance { code: other.as_raw() },
        };
        // SAFETY: the entry was loaded just now; this and the next queries have no preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }.map_err(no_instance)?;
        let version = version.unwrap_or(vk::API_VERSION_1_0).min(vk::API_VERSION_1_3);
        if version < vk::API_VERSION_1_2 {
            let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
            return Err(OpenError::TooOld { major, minor });
        }
        // SAFETY: as above.
        let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
        let has = |l: &vk::LayerProperties| l.layer_name_as_c_str().is_ok_and(|n| n == VALIDATION);
        if validation && !layers.iter().any(has) {
            return Err(OpenError::NoValidation);
        }
        let debug_utils = validation || has_debug_utils(&entry);
        let raw = create(&entry, version, validation, debug_utils).map_err(no_instance)?;
        let messages = Arc::new(Messages::default());
        let messenger = validation.then(|| listen(&entry, &raw, &messages)).flatten();
        let process = std::process::id();
        Ok(Self { _entry: entry, raw, debug_utils, messages, messenger, owned: true, process })
    }

    /// Uses an instance that a host program owns and keeps alive.
    pub fn of_host(entry: ash::Entry, raw: ash::Instance, debug_utils: bool) -> Self {
        let (messages, process) = (Arc::default(), std::process::id());
        Self { _entry: entry, raw, debug_utils, messages, messenger: None, owned: false, process }
    }

    /// The physical devices, in the driver's order.
    pub fn devices(&self) -> Result<Vec<vk::PhysicalDevice>, OpenError> {
        // SAFETY: the instance is alive.
        match unsafe { self.raw.enumerate_physical_devices() } {
            Ok(devices) if devices.is_empty() => Err(OpenError::NoDriver),
            Ok(devices) => Ok(devices),
            Err(vk::Result::ERROR_INITIALIZATION_FAILED) => Err(OpenError::NoDriver),
            Err(other) => Err(OpenError::NoInstance { code: other.as_raw() }),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        if let Some(messenger) = self.messenger.take() {
            // SAFETY: the messenger was made by this instance, which is still alive.
            unsafe { messenger.fns.destroy_debug_utils_messenger(messenger.raw, None) };
        }
        if self.owned {
            // SAFETY: every device made from the instance holds this struct, so none is left.
            unsafe { self.raw.destroy_instance(None) };
        }
    }
}

fn has_debug_utils(entry: &ash::Entry) -> bool {
    // SAFETY: a query without preconditions.
    let list = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
    list.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == ash::ext::debug_utils::NAME))
}

fn create(
    entry: &ash::Entry,
    version: u32,
    validation: bool,
    debug_utils: bool,
) -> Result<ash::Instance, vk::Result> {
    let app = vk::ApplicationInfo::default()
        .application_name(c"terrane")
        .engine_name(c"terrane")
        .api_version(version);
    let layers = if validation { vec![VALIDATION.as_ptr()] } else { Vec::new() };
    let names = if debug_utils { vec![ash::ext::debug_utils::NAME.as_ptr()] } else { Vec::new() };
    let checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
    let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
    let mut info = vk::InstanceCreateInfo::default()
        .application_info(&app)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&names);
    if validation {
        info = info.push_next(&mut features);
    }
    // SAFETY: `info` and all it points to live through the call.
    unsafe { entry.create_instance(&info, None) }
}

fn listen(
    entry: &ash::Entry,
    instance: &ash::Instance,
    messages: &Arc<Messages>,
) -> Option<Messenger> {
    let fns = ash::ext::debug_utils::Instance::new(entry, instance);
    let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
        )
        .message_type(
            vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
        )
        .pfn_user_callback(Some(on_message))
        .user_data(Arc::as_ptr(messages).cast_mut().cast());
    // SAFETY: the callback's user data lives as long as the instance: `Instance` owns an `Arc`.
    let raw = unsafe { fns.create_debug_utils_messenger(&info, None) }.ok()?;
    Some(Messenger { fns, raw })
}

unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes valid callback data, and the user data given in `listen`.
    unsafe {
        if let (Some(data), Some(messages)) = (data.as_ref(), user.cast::<Messages>().as_ref())
            && !data.p_message.is_null()
        {
            messages.push(CStr::from_ptr(data.p_message).to_string_lossy().into_owned());
        }
    }
    vk::FALSE
}
