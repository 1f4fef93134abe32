//! Finding the driver's library without a panic.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

use super::Driver;
use super::real::RealDriver;
use super::table::Table;
use crate::CudaUnavailable;

/// The machine's driver: looked for once in a process, since a library does not come or go.
pub(crate) fn load() -> Result<Arc<dyn Driver>, CudaUnavailable> {
    static FOUND: OnceLock<Result<Table, CudaUnavailable>> = OnceLock::new();
    let table = (*FOUND.get_or_init(find))?;
    Ok(Arc::new(RealDriver::new(table)))
}

fn find() -> Result<Table, CudaUnavailable> {
    // SAFETY: loads libcuda, whose initialisers have no requirement on the caller.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaUnavailable::NoLibrary);
    }
    Table::load()
}
