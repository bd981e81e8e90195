// SPDX-License-Identifier: GPL-2.0

//! `impl_flags!`, with the methods that the driver uses.

/// Declares a set of flags and the enumeration of the single flags.
#[macro_export]
macro_rules! impl_flags {
    (
        $(#[$word_meta:meta])* $word_vis:vis struct $word:ident($type:ty);
        $(#[$flag_meta:meta])* $flag_vis:vis enum $flag:ident {
            $($(#[$doc:meta])* $name:ident = $value:expr,)+
        }
    ) => {
        $(#[$word_meta])*
        $word_vis struct $word($type);

        $(#[$flag_meta])*
        #[repr($type)]
        $flag_vis enum $flag {
            $($(#[$doc])* $name = $value,)+
        }

        impl From<$flag> for $word {
            fn from(flag: $flag) -> Self {
                Self(flag as $type)
            }
        }

        impl From<$word> for $type {
            fn from(word: $word) -> Self {
                word.0
            }
        }

        impl core::ops::BitOr for $flag {
            type Output = $word;

            fn bitor(self, other: Self) -> $word {
                $word(self as $type | other as $type)
            }
        }

        impl core::ops::BitOr<$flag> for $word {
            type Output = Self;

            fn bitor(self, flag: $flag) -> Self {
                Self(self.0 | flag as $type)
            }
        }

        impl $word {
            /// Returns the empty set.
            $word_vis const fn empty() -> Self {
                Self(0)
            }

            /// Returns whether the flag is set.
            $word_vis fn contains(self, flag: $flag) -> bool {
                self.0 & flag as $type == flag as $type
            }

            /// Returns whether any of the flags is set.
            $word_vis fn contains_any(self, flags: Self) -> bool {
                self.0 & flags.0 != 0
            }
        }
    };
}
