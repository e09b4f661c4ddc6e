//! What declares parameters, and choices that have them.

/// Makes a struct of parameters, all `f64` or all `u64`, from a line for each: its doc, name,
/// default, range and, if its values have names, these from 0 on.
///
/// The struct has `Default`, `FIELDS`, `values`, and `values_mut` for its crate.
///
/// # Examples
/// ```
/// use spanwire_params::params;
///
/// params! {
///     /// What a spray leaves to choose.
///     struct Params of u64;
///     /// So many paths.
///     ///
///     /// As many as there are spines.
///     paths = 8 in 1..=64;
///     /// How the next is found.
///     order = 0 in 0..=1 as "random" | "turn";
/// }
///
/// let turn = Params { order: 1, ..Params::default() };
/// assert_eq!(Params::FIELDS[1].text(turn.order), "turn");
/// assert_eq!(Params::FIELDS[0].parse("65").unwrap_err().to_string(),
///     "paths is 65, but must be between 1 and 64");
/// ```
#[macro_export]
macro_rules! params {
    (
        $(#[$struct_doc:meta])*
        struct $Params:ident of $N:ident;
        $(
            #[doc = $about:literal]
            $(#[doc = $more:literal])*
            $field:ident = $default:literal in $min:literal ..= $max:literal
                $(as $($word:literal)|+)?;
        )*
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $Params {
            $(
                #[doc = $about]
                $(#[doc = $more])*
                #[doc = concat!(
                    "\n\nDefault ", stringify!($default), ", ",
                    stringify!($min), "..=", stringify!($max), "."
                )]
                pub $field: $N,
            )*
        }

        $crate::params!(@eq $N $Params);

        impl Default for $Params {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $Params {
            /// Every parameter, in the order of the struct.
            pub const FIELDS: &'static [$crate::Field<$N>] = &[
                $($crate::Field {
                    name: stringify!($field),
                    about: concat!($about $(, $more)*),
                    default: $default,
                    min: $min,
                    max: $max,
                    words: &[$($($word),+)?],
                }),*
            ];

            /// The values, in the order of `FIELDS`.
            #[must_use]
            pub fn values(&self) -> Vec<$N> {
                vec![$(self.$field),*]
            }

            /// The values, to be set; nothing checks them.
            pub(crate) fn values_mut(&mut self) -> Vec<&mut $N> {
                vec![$(&mut self.$field),*]
            }
        }
    };
    (@eq u64 $Params:ident) => {
        impl Eq for $Params {}
    };
    (@eq f64 $Params:ident) => {};
}

/// Makes an enum of what is chosen by name, from a line for each: its doc, the variant with its
/// parameters (a struct of [`params!`](crate::params!)), its name. Lines that begin with a name are
/// presets: names for one of them with certain parameters.
///
/// The enum has `NAMES`, `PRESETS`, `known`, `named`, `parse`, `name`, `fields`, `values`,
/// `validate`, `set`, `defaults`, `differences` and `Display`, and `values_mut` for its module.
#[macro_export]
macro_rules! choices {
    (
        $(#[$meta:meta])*
        enum $Choice:ident of $N:ident, $what:literal;
        $($(#[$doc:meta])* $Name:ident($Params:ty) = $name:literal;)*
        $($preset:literal = $value:expr;)*
    ) => {
        $(#[$meta])*
        pub enum $Choice {
            $($(#[$doc])* $Name($Params),)*
        }

        impl $Choice {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Names for one of them with certain parameters.
            pub const PRESETS: &'static [&'static str] = &[$($preset),*];

            /// Every name that `named` takes.
            #[must_use]
            pub fn known() -> Vec<&'static str> {
                [Self::NAMES, Self::PRESETS].concat()
            }

            /// The one of this name, with its defaults, or the preset.
            ///
            /// # Errors
            /// There is none.
            pub fn named(name: &str) -> Result<Self, $crate::ParamError> {
                match name {
                    $($name => Ok(Self::$Name(<$Params>::default())),)*
                    $($preset => Ok($value),)*
                    _ => Err($crate::ParamError::NoChoice {
                        what: $what,
                        name: name.to_owned(),
                        known: Self::known(),
                    }),
                }
            }

            /// From text: a name, and parameters behind it: `name,key=value,key=value`.
            ///
            /// # Errors
            /// There is none of that name, it has no such parameter, or it cannot have that value.
            pub fn parse(text: &str) -> Result<Self, $crate::ParamError> {
                let (name, settings) = $crate::split(text);
                let mut choice = Self::named(name)?;
                for setting in settings {
                    let (key, value) = setting?;
                    choice.set(key, value)?;
                }
                Ok(choice)
            }

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Name(_) => $name,)*
                }
            }

            /// Its parameters, as people see them.
            #[must_use]
            pub fn fields(&self) -> &'static [$crate::Field<$N>] {
                match self {
                    $(Self::$Name(_) => <$Params>::FIELDS,)*
                }
            }

            /// Their values, in the order of `fields`.
            #[must_use]
            pub fn values(&self) -> Vec<$N> {
                match self {
                    $(Self::$Name(params) => params.values(),)*
                }
            }

            fn values_mut(&mut self) -> Vec<&mut $N> {
                match self {
                    $(Self::$Name(params) => params.values_mut(),)*
                }
            }

            /// Checks all of them.
            ///
            /// # Errors
            /// The first that is outside its range.
            pub fn validate(&self) -> Result<(), $crate::ParamError> {
                $crate::validate(self.fields(), &self.values())
            }

            /// Sets a parameter from text: a number, or a word where its values have names.
            ///
            /// # Errors
            /// There is no such parameter, or it cannot have this value; then nothing has changed.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), $crate::ParamError> {
                $crate::set(self.fields(), self.values_mut(), name, text)
            }

            /// The same, with all parameters at their defaults.
            #[must_use]
            pub fn defaults(&self) -> Self {
                match self {
                    $(Self::$Name(_) => Self::$Name(<$Params>::default()),)*
                }
            }

            /// The parameters that are set otherwise than in `plain`, which is of the same name:
            /// their names, and values that `set` takes and that read back to the bit.
            #[must_use]
            pub fn differences(&self, plain: &Self) -> Vec<(&'static str, String)> {
                $crate::differences(self.fields(), &self.values(), &plain.values())
            }
        }

        /// As `parse` takes it: the name, and the parameters that are not at their defaults.
        impl std::fmt::Display for $Choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())?;
                let settings = self.differences(&self.defaults());
                settings.iter().try_for_each(|(name, text)| write!(f, ",{name}={text}"))
            }
        }
    };
}
