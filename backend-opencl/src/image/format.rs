//! The formats of pixels.

use std::fmt;

/// An enum of the runtime's constants, each with its number.
macro_rules! constants {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $code:literal as $text:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $code,)+
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number in the OpenCL headers.
            pub const fn code(self) -> u32 {
                self as u32
            }

            /// The value of that number in the OpenCL headers, if it is known.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The name in the OpenCL headers, without `CL_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

constants! {
    /// The channels of a pixel, and their order in memory (OpenCL 3.0, section 5.3.1.1; `channel_order` of `PyOpenCL`).
    ///
    /// ```
    /// use binpool_opencl::ChannelOrder;
    /// use cl3::memory::{CL_BGRA, CL_DEPTH};
    ///
    /// let order = ChannelOrder::Bgra;
    /// assert_eq!((order.channel_count(), order.name()), (4, "BGRA"));
    /// // Numbers of the headers, for other libraries and from them.
    /// assert_eq!(order.code(), CL_BGRA);
    /// assert_eq!(ChannelOrder::from_code(CL_DEPTH), Some(ChannelOrder::Depth));
    /// assert_eq!(ChannelOrder::from_code(0), None);
    /// ```
    ChannelOrder {
        /// Red.
        R = 0x10B0 as "R",
        /// Alpha.
        A = 0x10B1 as "A",
        /// Red, green.
        Rg = 0x10B2 as "RG",
        /// Red, alpha.
        Ra = 0x10B3 as "RA",
        /// Red, green, blue. For packed types only.
        Rgb = 0x10B4 as "RGB",
        /// Red, green, blue, alpha.
        Rgba = 0x10B5 as "RGBA",
        /// Blue, green, red, alpha.
        Bgra = 0x10B6 as "BGRA",
        /// Alpha, red, green, blue.
        Argb = 0x10B7 as "ARGB",
        /// One value, read as all four channels.
        Intensity = 0x10B8 as "INTENSITY",
        /// One value, read as red, green and blue.
        Luminance = 0x10B9 as "LUMINANCE",
        /// Red, with a border of alpha 0.
        Rx = 0x10BA as "Rx",
        /// Red and green, with a border of alpha 0.
        Rgx = 0x10BB as "RGx",
        /// Red, green and blue, with a border of alpha 0. For packed types only.
        Rgbx = 0x10BC as "RGBx",
        /// Depth.
        Depth = 0x10BD as "DEPTH",
        /// Red, green and blue in the sRGB colour space.
        SRgb = 0x10BF as "sRGB",
        /// Red, green and blue in the sRGB colour space, with a border of alpha 0.
        SRgbx = 0x10C0 as "sRGBx",
        /// Red, green and blue in the sRGB colour space, and alpha.
        SRgba = 0x10C1 as "sRGBA",
        /// Blue, green and red in the sRGB colour space, and alpha.
        SBgra = 0x10C2 as "sBGRA",
        /// Alpha, blue, green, red.
        Abgr = 0x10C3 as "ABGR",
    }
}

constants! {
    /// The type of a channel, or of a whole pixel if its channels are packed (OpenCL 3.0, section 5.3.1.1;
    /// `channel_type` of `PyOpenCL`).
    ///
    /// ```
    /// use binpool_opencl::ChannelType;
    /// use cl3::memory::CL_HALF_FLOAT;
    ///
    /// let data = ChannelType::from_code(CL_HALF_FLOAT).ok_or("a type of an extension")?;
    /// assert_eq!((data, data.name()), (ChannelType::HalfFloat, "HALF_FLOAT"));
    /// assert_eq!(data.code(), CL_HALF_FLOAT);
    /// assert_eq!(data.bytes(), 2);
    ///
    /// // Two bytes too, but for all three channels of a pixel.
    /// let packed = ChannelType::UnormShort565;
    /// assert_eq!(packed.bytes(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ChannelType {
        /// 8 bits, read as -1.0 to 1.0.
        SnormInt8 = 0x10D0 as "SNORM_INT8",
        /// 16 bits, read as -1.0 to 1.0.
        SnormInt16 = 0x10D1 as "SNORM_INT16",
        /// 8 bits, read as 0.0 to 1.0.
        UnormInt8 = 0x10D2 as "UNORM_INT8",
        /// 16 bits, read as 0.0 to 1.0.
        UnormInt16 = 0x10D3 as "UNORM_INT16",
        /// Three channels packed into 16 bits: 5, 6 and 5.
        UnormShort565 = 0x10D4 as "UNORM_SHORT_565",
        /// Three channels packed into 16 bits: 5 each, and one unused.
        UnormShort555 = 0x10D5 as "UNORM_SHORT_555",
        /// Three channels packed into 32 bits: 10 each, and two unused.
        UnormInt101010 = 0x10D6 as "UNORM_INT_101010",
        /// 8 bits, signed.
        SignedInt8 = 0x10D7 as "SIGNED_INT8",
        /// 16 bits, signed.
        SignedInt16 = 0x10D8 as "SIGNED_INT16",
        /// 32 bits, signed.
        SignedInt32 = 0x10D9 as "SIGNED_INT32",
        /// 8 bits, unsigned.
        UnsignedInt8 = 0x10DA as "UNSIGNED_INT8",
        /// 16 bits, unsigned.
        UnsignedInt16 = 0x10DB as "UNSIGNED_INT16",
        /// 32 bits, unsigned.
        UnsignedInt32 = 0x10DC as "UNSIGNED_INT32",
        /// A float of 16 bits.
        HalfFloat = 0x10DD as "HALF_FLOAT",
        /// A float of 32 bits.
        Float = 0x10DE as "FLOAT",
        /// Four channels packed into 32 bits: 10 each, and 2.
        UnormInt101010_2 = 0x10E0 as "UNORM_INT_101010_2",
    }
}

impl ChannelOrder {
    /// The number of channels of a pixel in memory.
    pub const fn channel_count(self) -> usize {
        match self {
            Self::R | Self::A | Self::Rx | Self::Intensity | Self::Luminance | Self::Depth => 1,
            Self::Rg | Self::Ra | Self::Rgx => 2,
            Self::Rgb | Self::Rgbx | Self::SRgb | Self::SRgbx => 3,
            Self::Rgba | Self::Bgra | Self::Argb | Self::SRgba | Self::SBgra | Self::Abgr => 4,
        }
    }

    /// Returns the first `channels` of red, green, blue and alpha.
    #[cfg(feature = "ndarray")]
    pub(super) const fn first_of_rgba(channels: usize) -> Option<Self> {
        match channels {
            1 => Some(Self::R),
            2 => Some(Self::Rg),
            3 => Some(Self::Rgb),
            4 => Some(Self::Rgba),
            _ => None,
        }
    }
}

impl ChannelType {
    /// The size in bytes: of one channel, or of the whole pixel if its channels are packed.
    pub const fn bytes(self) -> usize {
        match self {
            Self::SnormInt8 | Self::UnormInt8 | Self::SignedInt8 | Self::UnsignedInt8 => 1,
            Self::SnormInt16
            | Self::UnormInt16
            | Self::UnormShort565
            | Self::UnormShort555
            | Self::SignedInt16
            | Self::UnsignedInt16
            | Self::HalfFloat => 2,
            Self::UnormInt101010
            | Self::UnormInt101010_2
            | Self::SignedInt32
            | Self::UnsignedInt32
            | Self::Float => 4,
        }
    }

    /// Returns whether the channels of a pixel share one number.
    pub(crate) const fn is_packed(self) -> bool {
        matches!(
            self,
            Self::UnormShort565
                | Self::UnormShort555
                | Self::UnormInt101010
                | Self::UnormInt101010_2
        )
    }
}

/// The format of a pixel: its channels, and their type (`ImageFormat` of `PyOpenCL`).
///
/// OpenCL does not know every pair, and a device has only some of those:
/// [`supported_image_formats`](crate::OpenClBackend::supported_image_formats) lists them.
///
/// ```
/// use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat};
///
/// let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// assert_eq!((format.channel_count(), format.channel_bytes(), format.item_bytes()), (4, 1, 4));
/// assert_eq!(format.to_string(), "RGBA of UNORM_INT8");
///
/// let packed = ImageFormat::new(ChannelOrder::Rgb, ChannelType::UnormShort565);
/// assert_eq!((packed.channel_count(), packed.channel_bytes(), packed.item_bytes()), (3, 2, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageFormat {
    /// The channels.
    pub order: ChannelOrder,
    /// The type of each channel.
    pub data: ChannelType,
}

impl ImageFormat {
    /// Returns the format of pixels with these channels, each of that type.
    pub const fn new(order: ChannelOrder, data: ChannelType) -> Self {
        Self { order, data }
    }

    /// The number of channels of a pixel in memory (`channel_count`).
    pub const fn channel_count(self) -> usize {
        self.order.channel_count()
    }

    /// The size of a channel in bytes; of the whole pixel if its channels are packed (`dtype_size`).
    pub const fn channel_bytes(self) -> usize {
        self.data.bytes()
    }

    /// The size of a pixel in bytes (`itemsize`).
    pub const fn item_bytes(self) -> usize {
        if self.data.is_packed() {
            self.data.bytes()
        } else {
            self.data.bytes() * self.order.channel_count()
        }
    }

    /// Returns the format of the runtime's two numbers; `None` if this crate does not know one of them.
    pub(crate) fn from_codes((order, data): (u32, u32)) -> Option<Self> {
        Some(Self::new(
            ChannelOrder::from_code(order)?,
            ChannelType::from_code(data)?,
        ))
    }

    pub(crate) const fn codes(self) -> (u32, u32) {
        (self.order.code(), self.data.code())
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.order, self.data)
    }
}
