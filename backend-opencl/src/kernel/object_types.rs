//! The check of images and pipes against their declarations.

use cl3::kernel::{CL_KERNEL_ARG_ACCESS_READ_ONLY, CL_KERNEL_ARG_ACCESS_WRITE_ONLY};

use super::parameter::{Parameter, ParameterAccess, ParameterRole};
use crate::{image::ImageKind, sys::kernel::ArgumentInfo};

/// Checks that an image or a pipe is declared with the kind and the access of its type in the kernel.
pub(super) fn check(parameter: &Parameter, info: &ArgumentInfo) -> Result<(), String> {
    match parameter.0 {
        ParameterRole::Image { kind, access } => {
            access.check_is(access_of(info))?;
            match image_kind(&info.type_name) {
                Some(actual) if kind != actual => {
                    Err(format!("is a {actual}, but {kind} was declared"))
                }
                _ => Ok(()),
            }
        }
        ParameterRole::Pipe { access, .. } => access.check_is(access_of(info)),
        _ => Ok(()),
    }
}

fn access_of(info: &ArgumentInfo) -> ParameterAccess {
    if info.access == u64::from(CL_KERNEL_ARG_ACCESS_READ_ONLY) {
        ParameterAccess::Input
    } else if info.access == u64::from(CL_KERNEL_ARG_ACCESS_WRITE_ONLY) {
        ParameterAccess::Output
    } else {
        ParameterAccess::InOut
    }
}

/// Returns the kind of an image type; `None` for a type that no image of this crate has.
fn image_kind(name: &str) -> Option<ImageKind> {
    Some(match name.strip_suffix("_t")? {
        "image1d" => ImageKind::D1,
        "image1d_buffer" => ImageKind::D1Buffer,
        "image1d_array" => ImageKind::D1Array,
        "image2d" | "image2d_depth" => ImageKind::D2,
        "image2d_array" | "image2d_array_depth" => ImageKind::D2Array,
        "image3d" => ImageKind::D3,
        _ => return None,
    })
}
