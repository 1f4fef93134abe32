//! Terrane's Vulkan device, over ash.
