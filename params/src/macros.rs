//! The macros that declare parameters, and choices with parameters.

/// Makes a struct of parameters from a line for each: its doc, name, default and range.
///
/// Numbers are all `f64` or all `u64`. A parameter with `of` and names in place of the range is
/// the index of one of them. A parameter without a range is a `bool`.
///
/// The struct has `Default`, `FIELDS`, `values`, `is_set`, and `values_mut` and `explicit_mut` for
/// its crate. Two are equal if their values are, whichever of them were set.
///
/// # Examples
/// ```
/// use spanwire_params::params;
///
/// params! {
///     /// Parameters of a spray.
///     struct Params of u64;
///     /// Number of paths.
///     ///
///     /// As many as there are spines.
///     paths = 8 in 1..=64;
///     /// Selection of the next path.
///     order = 0 of "random" | "turn";
///     /// A lost packet changes its path.
///     on_loss = false;
/// }
///
/// let turn = Params { order: 1, on_loss: true, ..Params::default() };
/// assert_eq!(Params::FIELDS[1].text(turn.order.into()), "turn");
/// assert_eq!(Params::FIELDS[2].text(turn.on_loss.into()), "true");
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
            $field:ident = $default:literal
                $(in $min:literal ..= $max:literal)? $(of $($word:literal)|+)?;
        )*
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Params {
            $(
                #[doc = $about]
                $(#[doc = $more])*
                #[doc = concat!(
                    "\n\nDefault ", stringify!($default)
                    $(, ", ", stringify!($min), "..=", stringify!($max))?
                    $(, " of", $(" ", $word),+)?, "."
                )]
                pub $field: $crate::params!(@type $N $(in $min)? $(of $($word)+)?),
            )*
            #[doc(hidden)]
            pub explicit: $crate::Explicit,
        }

        impl PartialEq for $Params {
            fn eq(&self, other: &Self) -> bool {
                let _ = other;
                true $(&& self.$field == other.$field)*
            }
        }

        $crate::params!(@eq $N $Params);

        impl Default for $Params {
            fn default() -> Self {
                Self { $($field: $default,)* explicit: $crate::Explicit::default() }
            }
        }

        impl $Params {
            /// Every parameter, in the order of the struct.
            pub const FIELDS: &'static [$crate::Field<$N>] = &[
                $($crate::Field {
                    name: stringify!($field),
                    about: concat!($about $(, $more)*),
                    default: $crate::params!(@default $default, $(in $min)? $(of $($word)+)?),
                    kind: $crate::params!(@kind $(in $min, $max)? $(of $($word)+)?),
                }),*
            ];

            /// The values, in the order of `FIELDS`.
            #[must_use]
            pub fn values(&self) -> Vec<$crate::Value<$N>> {
                vec![$(self.$field.into()),*]
            }

            /// True if the parameter of this name was set, to whatever value.
            #[must_use]
            pub fn is_set(&self, name: &str) -> bool {
                let place = Self::FIELDS.iter().position(|field| field.name == name);
                place.is_some_and(|place| self.explicit.has(place))
            }

            /// The parameters that were set.
            pub(crate) fn explicit_mut(&mut self) -> &mut $crate::Explicit {
                &mut self.explicit
            }

            /// The places of the values, to set them without a check.
            pub(crate) fn values_mut(&mut self) -> Vec<$crate::Slot<'_, $N>> {
                vec![$((&mut self.$field).into()),*]
            }
        }
    };
    (@eq u64 $Params:ident) => {
        impl Eq for $Params {}
    };
    (@eq f64 $Params:ident) => {};
    (@type $N:ident) => { bool };
    (@type $N:ident $($number:tt)+) => { $N };
    (@default $default:literal,) => { $crate::Value::Bool($default) };
    (@default $default:literal, $($number:tt)+) => { $crate::Value::Number($default) };
    (@kind) => { $crate::Kind::Bool };
    (@kind in $min:literal, $max:literal) => { $crate::Kind::Number { min: $min, max: $max } };
    (@kind of $($word:literal)+) => { $crate::Kind::Named(&[$($word),+]) };
}

/// Makes an enum of choices by name, from a line for each: its doc, the variant with its
/// parameters (a struct of [`params!`](crate::params!)), its name. Lines that begin with a name are
/// presets: names for a choice with certain parameters.
///
/// The enum has `NAMES`, `PRESETS`, `known`, `named`, `parse`, `name`, `fields`, `values`,
/// `validate`, `set`, `settings`, `defaults`, `differences` and `Display`, and `values_mut` for its
/// module.
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
            /// The names of the choices.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// The names of the presets: choices with certain parameters.
            pub const PRESETS: &'static [&'static str] = &[$($preset),*];

            /// Every name that `named` takes.
            #[must_use]
            pub fn known() -> Vec<&'static str> {
                [Self::NAMES, Self::PRESETS].concat()
            }

            /// The choice of this name, with its defaults, or the preset.
            ///
            /// # Errors
            /// There is no choice and no preset of this name.
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

            /// The choice from text: a name, then parameters: `name,key=value,key=value`.
            ///
            /// # Errors
            /// The name or a parameter is unknown, or a parameter cannot have its value.
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

            /// The descriptions of its parameters.
            #[must_use]
            pub fn fields(&self) -> &'static [$crate::Field<$N>] {
                match self {
                    $(Self::$Name(_) => <$Params>::FIELDS,)*
                }
            }

            /// The values of its parameters, in the order of `fields`.
            #[must_use]
            pub fn values(&self) -> Vec<$crate::Value<$N>> {
                match self {
                    $(Self::$Name(params) => params.values(),)*
                }
            }

            fn values_mut(&mut self) -> Vec<$crate::Slot<'_, $N>> {
                match self {
                    $(Self::$Name(params) => params.values_mut(),)*
                }
            }

            /// Checks all parameters.
            ///
            /// # Errors
            /// The first value that is outside its range.
            pub fn validate(&self) -> Result<(), $crate::ParamError> {
                $crate::validate(self.fields(), &self.values())
            }

            /// Sets a parameter from text: a number, a name of a value, or a flag.
            ///
            /// # Errors
            /// There is no such parameter, or it cannot have this value; then nothing has changed.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), $crate::ParamError> {
                let place = $crate::set(self.fields(), self.values_mut(), name, text)?;
                match self {
                    $(Self::$Name(params) => params.explicit_mut().add(place),)*
                }
                Ok(())
            }

            /// The names and values of the parameters that were set, or differ from their defaults.
            /// `set` reads the values back to the bit.
            #[must_use]
            pub fn settings(&self) -> Vec<(&'static str, String)> {
                let differ = self.differences(&self.defaults());
                let all = self.fields().iter().zip(self.values());
                let is_set = |name: &str| match self {
                    $(Self::$Name(params) => params.is_set(name),)*
                };
                let kept = all.filter(|(field, _)| {
                    is_set(field.name) || differ.iter().any(|(name, _)| *name == field.name)
                });
                kept.map(|(field, value)| (field.name, field.text(value))).collect()
            }

            /// The same choice with all parameters at their defaults.
            #[must_use]
            pub fn defaults(&self) -> Self {
                match self {
                    $(Self::$Name(_) => Self::$Name(<$Params>::default()),)*
                }
            }

            /// The names and values of the parameters that differ from those in `plain`, a choice
            /// of the same name. `set` reads the values back to the bit.
            #[must_use]
            pub fn differences(&self, plain: &Self) -> Vec<(&'static str, String)> {
                $crate::differences(self.fields(), &self.values(), &plain.values())
            }
        }

        /// The form that `parse` reads: the name, and the parameters that were set or differ from
        /// their defaults.
        impl std::fmt::Display for $Choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())?;
                let settings = self.settings();
                settings.iter().try_for_each(|(name, text)| write!(f, ",{name}={text}"))
            }
        }
    };
}
