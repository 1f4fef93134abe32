//! Terrane's CUDA device, loaded at run time.
