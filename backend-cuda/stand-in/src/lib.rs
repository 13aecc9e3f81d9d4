//! A stand-in for libcuda, for tests without a GPU: the calls that `binpool-cuda`, and cudarc in its tests, make, in host memory.
//!
//! Each stream is a thread, which runs its commands some time after they were enqueued. Addresses of the device are no addresses of the host: each
//! command looks up what is there, and an address without memory, or without access, is the error `ILLEGAL_ADDRESS` of this and every
//! later call. `cuMemFree`, `cuMemFreeHost` and `cuCtxSynchronize` wait for all commands of the device, as the driver does.
//!
//! Code for a device is not run: a kernel is found by its name, where the stand-in has one of that name and the module says `.entry` of it
//! (`kernels`).
//!
//! The devices number 0 to 65535 are all there; `cuDeviceGetCount` speaks of two. A test takes some for itself, and arranges their capacity,
//! their faults and whether they may use each other's memory by the functions that begin with `stand_in_`.
//!
//! A stream can be captured into a graph, alone: a wait on another stream for an event of a capture is an error here. Calls that the driver
//! may forbid during a capture are forbidden, and spoil it, unless the calling thread is in the relaxed mode. (Driver 580 forbids those that
//! ask, wait, free or allocate, but for `cuMemCreate`.) A wait for a captured stream, its device or its events is forbidden in any mode. User
//! objects of a graph are destroyed, on a thread of their own, once it, its executables and their launches are gone.
//!
//! The library is a stand-in for CUPTI, too (`cupti`), as far as a recording of the driver's calls needs that.
//!
//! An object is used in its own context, which has to be current, or the call fails. Streams wait for events of other devices, too. A device
//! uses memory of another where peer access is enabled, or the rights to the pages say so; `cuMemcpyPeerAsync` copies in any case.

mod calls;
mod capture;
mod context;
mod control;
mod cupti;
mod device;
mod event;
mod faults;
mod kernels;
mod memory;
mod objects;
mod stream;
mod transfer;

/// `CUresult`.
type Code = i32;

const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const INVALID_DEVICE: Code = 101;
const INVALID_CONTEXT: Code = 201;
const PEER_ACCESS_UNSUPPORTED: Code = 217;
const INVALID_PTX: Code = 218;
const INVALID_HANDLE: Code = 400;
const OPERATING_SYSTEM: Code = 304;
const NOT_FOUND: Code = 500;
const NOT_READY: Code = 600;
const PEER_ACCESS_ALREADY_ENABLED: Code = 704;
const ILLEGAL_ADDRESS: Code = 700;
const CAPTURE_UNSUPPORTED: Code = 900;
const CAPTURE_INVALIDATED: Code = 901;
const CAPTURE_UNMATCHED: Code = 903;
const CAPTURE_ISOLATION: Code = 905;
const CAPTURED_EVENT: Code = 907;
