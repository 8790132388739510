// SPDX-License-Identifier: MPL-2.0

//! `hipError_t`.

use std::ffi::c_int;
use std::fmt;

/// The status of a HIP function. It is a plain number, because newer runtimes return values that are unknown today.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
#[repr(transparent)]
pub struct HipError(c_int);

macro_rules! errors {
    ($($constant:ident $name:ident $value:literal;)*) => {
        impl HipError {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $constant: Self = Self($value);)*

            /// Returns HIP's name of the value, if this crate knows it.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }
        }

        #[cfg(test)]
        pub(crate) const ERRORS: &[(&str, c_int)] = &[$((stringify!($name), $value),)*];
    };
}

errors! {
    SUCCESS hipSuccess 0;
    INVALID_VALUE hipErrorInvalidValue 1;
    OUT_OF_MEMORY hipErrorOutOfMemory 2;
    NOT_INITIALIZED hipErrorNotInitialized 3;
    DEINITIALIZED hipErrorDeinitialized 4;
    INVALID_CONFIGURATION hipErrorInvalidConfiguration 9;
    INVALID_PITCH_VALUE hipErrorInvalidPitchValue 12;
    INVALID_SYMBOL hipErrorInvalidSymbol 13;
    INVALID_DEVICE_POINTER hipErrorInvalidDevicePointer 17;
    INVALID_MEMCPY_DIRECTION hipErrorInvalidMemcpyDirection 21;
    INSUFFICIENT_DRIVER hipErrorInsufficientDriver 35;
    MISSING_CONFIGURATION hipErrorMissingConfiguration 52;
    PRIOR_LAUNCH_FAILURE hipErrorPriorLaunchFailure 53;
    INVALID_DEVICE_FUNCTION hipErrorInvalidDeviceFunction 98;
    NO_DEVICE hipErrorNoDevice 100;
    INVALID_DEVICE hipErrorInvalidDevice 101;
    INVALID_IMAGE hipErrorInvalidImage 200;
    INVALID_CONTEXT hipErrorInvalidContext 201;
    MAP_FAILED hipErrorMapFailed 205;
    UNMAP_FAILED hipErrorUnmapFailed 206;
    NO_BINARY_FOR_GPU hipErrorNoBinaryForGpu 209;
    ECC_NOT_CORRECTABLE hipErrorECCNotCorrectable 214;
    UNSUPPORTED_LIMIT hipErrorUnsupportedLimit 215;
    PEER_ACCESS_UNSUPPORTED hipErrorPeerAccessUnsupported 217;
    INVALID_KERNEL_FILE hipErrorInvalidKernelFile 218;
    INVALID_SOURCE hipErrorInvalidSource 300;
    FILE_NOT_FOUND hipErrorFileNotFound 301;
    SHARED_OBJECT_SYMBOL_NOT_FOUND hipErrorSharedObjectSymbolNotFound 302;
    SHARED_OBJECT_INIT_FAILED hipErrorSharedObjectInitFailed 303;
    OPERATING_SYSTEM hipErrorOperatingSystem 304;
    INVALID_HANDLE hipErrorInvalidHandle 400;
    ILLEGAL_STATE hipErrorIllegalState 401;
    NOT_FOUND hipErrorNotFound 500;
    NOT_READY hipErrorNotReady 600;
    ILLEGAL_ADDRESS hipErrorIllegalAddress 700;
    LAUNCH_OUT_OF_RESOURCES hipErrorLaunchOutOfResources 701;
    LAUNCH_TIMEOUT hipErrorLaunchTimeOut 702;
    PEER_ACCESS_ALREADY_ENABLED hipErrorPeerAccessAlreadyEnabled 704;
    PEER_ACCESS_NOT_ENABLED hipErrorPeerAccessNotEnabled 705;
    CONTEXT_IS_DESTROYED hipErrorContextIsDestroyed 709;
    ASSERT hipErrorAssert 710;
    HOST_MEMORY_ALREADY_REGISTERED hipErrorHostMemoryAlreadyRegistered 712;
    HOST_MEMORY_NOT_REGISTERED hipErrorHostMemoryNotRegistered 713;
    LAUNCH_FAILURE hipErrorLaunchFailure 719;
    NOT_SUPPORTED hipErrorNotSupported 801;
    STREAM_CAPTURE_UNSUPPORTED hipErrorStreamCaptureUnsupported 900;
    STREAM_CAPTURE_INVALIDATED hipErrorStreamCaptureInvalidated 901;
    STREAM_CAPTURE_MERGE hipErrorStreamCaptureMerge 902;
    STREAM_CAPTURE_UNMATCHED hipErrorStreamCaptureUnmatched 903;
    STREAM_CAPTURE_UNJOINED hipErrorStreamCaptureUnjoined 904;
    STREAM_CAPTURE_ISOLATION hipErrorStreamCaptureIsolation 905;
    STREAM_CAPTURE_IMPLICIT hipErrorStreamCaptureImplicit 906;
    CAPTURED_EVENT hipErrorCapturedEvent 907;
    STREAM_CAPTURE_WRONG_THREAD hipErrorStreamCaptureWrongThread 908;
    UNKNOWN hipErrorUnknown 999;
    RUNTIME_MEMORY hipErrorRuntimeMemory 1052;
    RUNTIME_OTHER hipErrorRuntimeOther 1053;
}

impl HipError {
    /// Wraps a value that a runtime returned, including values without a constant.
    pub const fn from_code(code: c_int) -> Self {
        Self(code)
    }

    /// Returns HIP's number.
    pub const fn code(self) -> c_int {
        self.0
    }

    /// Converts the value to a result, for use with `?`.
    pub fn ok(self) -> Result<(), Self> {
        if self == Self::SUCCESS { Ok(()) } else { Err(self) }
    }

    /// Returns true if the device, or this process's context on it, can no longer be used; on NVIDIA until the process
    /// ends. Includes values that only the CUDA driver returns: 220 (NVLink), 714 to 718 (hardware stack, illegal
    /// instruction, misaligned address, address space, program counter).
    pub fn is_device_lost(self) -> bool {
        matches!(self.0, 4 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
    }
}

impl fmt::Display for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown error"), self.0)
    }
}

impl std::error::Error for HipError {}
