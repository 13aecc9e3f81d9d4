//! The check of a kernel against its declaration.

use cl3::kernel::{
    CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL,
    CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_TYPE_CONST, CL_KERNEL_ARG_TYPE_PIPE,
};

use super::parameter::{Parameter, ParameterAccess, ParameterKind, ParameterRole};
use crate::{
    error::OpenClError,
    sys::kernel::{self, ArgumentInfo, KernelHandle},
};

/// Checks `parameters` against `handle`, the kernel of that name.
///
/// If the compiler keeps no information about parameters, at least their number is checked.
pub(super) fn check(
    handle: &KernelHandle,
    name: &str,
    parameters: &[Parameter],
) -> Result<(), OpenClError> {
    let (actual, declared) = (kernel::argument_count(handle)?, parameters.len());
    if actual != declared {
        let problem = format!("has {actual} parameters, but {declared} are declared");
        return Err(OpenClError::kernel(name, None, problem));
    }
    for (index, parameter) in parameters.iter().enumerate() {
        let refused = |problem: String| OpenClError::kernel(name, Some(index), problem);
        check_alone(parameter, parameters).map_err(refused)?;
        // No kernel has 2^32 parameters.
        let info = kernel::argument_info(handle, u32::try_from(index).unwrap_or(u32::MAX))?;
        if let Some(info) = info {
            check_one(parameter, &info).map_err(refused)?;
        }
    }
    Ok(())
}

/// Checks what does not depend on the kernel.
fn check_alone(parameter: &Parameter, parameters: &[Parameter]) -> Result<(), String> {
    let has_elements = matches!(
        parameter.kind(),
        ParameterKind::Memory | ParameterKind::Value | ParameterKind::Local | ParameterKind::Pipe
    );
    if has_elements && parameter.element_bytes() == 0 {
        return Err("is declared with a type of 0 bytes".into());
    }
    let (ParameterRole::Length { of, .. } | ParameterRole::Offset { of }) = parameter.0 else {
        return Ok(());
    };
    match parameters.get(of).map(Parameter::kind) {
        Some(ParameterKind::Memory) => Ok(()),
        _ => Err(format!(
            "is the length or the offset of parameter {of}, which is not memory"
        )),
    }
}

/// Checks what the compiler reports about the parameter.
fn check_one(parameter: &Parameter, info: &ArgumentInfo) -> Result<(), String> {
    let (declared, actual) = (parameter.kind(), kind_of(info));
    if declared != actual {
        return Err(format!("is {actual}, but is declared as {declared}"));
    }
    check_access(parameter, info)?;
    #[cfg(feature = "images")]
    super::object_types::check(parameter, info)?;
    let type_name = element_type(&info.type_name);
    let declared = parameter.element_bytes();
    match size_of_type(type_name) {
        Some(actual) if actual != declared => Err(format!(
            "is declared with elements of {declared} bytes, but its type is {type_name}, of {actual} bytes"
        )),
        _ => Ok(()),
    }
}

/// Checks that the kernel can write memory that it is declared to write. A pointer that is not const may still be only read.
fn check_access(parameter: &Parameter, info: &ArgumentInfo) -> Result<(), String> {
    match parameter.0 {
        ParameterRole::Memory { access, .. } if is_constant(info) => {
            access.check_is(ParameterAccess::Input)
        }
        _ => Ok(()),
    }
}

fn kind_of(info: &ArgumentInfo) -> ParameterKind {
    if info.qualifiers & u64::from(CL_KERNEL_ARG_TYPE_PIPE) != 0 {
        return ParameterKind::Pipe;
    }
    if info.type_name == "sampler_t" {
        return ParameterKind::Sampler;
    }
    if info.access != u64::from(CL_KERNEL_ARG_ACCESS_NONE) {
        return ParameterKind::Image;
    }
    let is_in = |space: u32| info.address == u64::from(space);
    if is_in(CL_KERNEL_ARG_ADDRESS_GLOBAL) || is_in(CL_KERNEL_ARG_ADDRESS_CONSTANT) {
        ParameterKind::Memory
    } else if is_in(CL_KERNEL_ARG_ADDRESS_LOCAL) {
        ParameterKind::Local
    } else {
        ParameterKind::Value
    }
}

/// Returns whether the kernel cannot write through the pointer.
fn is_constant(info: &ArgumentInfo) -> bool {
    info.address == u64::from(CL_KERNEL_ARG_ADDRESS_CONSTANT)
        || info.qualifiers & u64::from(CL_KERNEL_ARG_TYPE_CONST) != 0
}

/// Returns the type that a pointer of type `name` points to; the type itself if it is not a pointer.
fn element_type(name: &str) -> &str {
    name.strip_suffix('*').unwrap_or(name).trim_end()
}

/// Returns the size of a scalar or vector type of OpenCL C; `None` for any other, and for those that depend on the device.
fn size_of_type(name: &str) -> Option<usize> {
    let (scalar, lanes) = match name.find(|letter: char| letter.is_ascii_digit()) {
        Some(start) => (&name[..start], name[start..].parse::<usize>().ok()?),
        None => (name, 1),
    };
    let lanes = match lanes {
        3 => 4,
        1 | 2 | 4 | 8 | 16 => lanes,
        _ => return None,
    };
    let bytes = match scalar {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        _ => return None,
    };
    Some(bytes * lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_scalars_and_vectors_are_known() {
        for (name, bytes) in [
            ("float*", Some(4)),
            ("float4 *", Some(16)),
            ("float3", Some(16)),
            ("uchar16", Some(16)),
            ("long", Some(8)),
            ("half2*", Some(4)),
            ("float**", None),
            ("struct point*", None),
            ("size_t", None),
            ("mat4", None),
            ("float5", None),
            ("int32_t", None),
        ] {
            assert_eq!(size_of_type(element_type(name)), bytes, "{name}");
        }
    }

    fn info(address: u32, access: u32, qualifiers: u32, type_name: &str) -> ArgumentInfo {
        ArgumentInfo {
            address: address.into(),
            access: access.into(),
            qualifiers: qualifiers.into(),
            type_name: type_name.into(),
        }
    }

    #[test]
    fn images_pipes_and_samplers_are_told_from_memory_and_values() {
        let none = CL_KERNEL_ARG_ACCESS_NONE;
        let global = CL_KERNEL_ARG_ADDRESS_GLOBAL;
        let private = cl3::kernel::CL_KERNEL_ARG_ADDRESS_PRIVATE;
        let read = cl3::kernel::CL_KERNEL_ARG_ACCESS_READ_ONLY;
        for (info, kind) in [
            (info(global, none, 0, "float*"), ParameterKind::Memory),
            (
                info(CL_KERNEL_ARG_ADDRESS_CONSTANT, none, 0, "float*"),
                ParameterKind::Memory,
            ),
            (
                info(CL_KERNEL_ARG_ADDRESS_LOCAL, none, 0, "float*"),
                ParameterKind::Local,
            ),
            (info(private, none, 0, "uint"), ParameterKind::Value),
            (info(private, none, 0, "sampler_t"), ParameterKind::Sampler),
            (info(global, read, 0, "image2d_t"), ParameterKind::Image),
            (
                info(global, read, CL_KERNEL_ARG_TYPE_PIPE, "int"),
                ParameterKind::Pipe,
            ),
        ] {
            assert_eq!(kind_of(&info), kind, "{info:?}");
        }
    }
}
