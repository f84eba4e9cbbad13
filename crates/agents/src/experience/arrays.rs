//! Named arrays in a safetensors file: how an agent's memory is saved, so that ordinary tools can open it.

use safetensors::{Dtype, SafeTensors, View};
use thiserror::Error;

/// A saved state that does not fit.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{0}")]
pub struct RestoreError(pub String);

/// One array to be saved.
pub(crate) struct Array {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

macro_rules! arrays {
    ($($name:ident, $type:ty, $dtype:ident);*) => {
        impl Array {
            $(pub fn $name(name: &'static str, values: &[$type]) -> Self {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Self { name, dtype: Dtype::$dtype, shape: vec![values.len()], bytes }
            })*
        }

        impl Arrays<'_> {
            $(pub fn $name(&self, name: &str) -> Result<Vec<$type>, RestoreError> {
                let bytes = self.raw(name, Dtype::$dtype)?;
                let (values, _) = bytes.as_chunks();
                Ok(values.iter().map(|&value| <$type>::from_le_bytes(value)).collect())
            })*
        }
    };
}

arrays!(u8, u8, U8; u32, u32, U32; u64, u64, U64; f64, f64, F64);

impl Array {
    /// Numbers that are bytes already, little-endian.
    pub fn raw(name: &'static str, dtype: Dtype, bytes: Vec<u8>) -> Self {
        let shape = vec![bytes.len() * 8 / dtype.bitsize()];
        Self { name, dtype, shape, bytes }
    }
}

impl View for &Array {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.bytes).into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The file.
pub(crate) fn to_bytes(arrays: &[Array]) -> Vec<u8> {
    safetensors::serialize(arrays.iter().map(|array| (array.name, array)), None)
        .expect("arrays with their own lengths make a file")
}

/// A file that is read back.
pub(crate) struct Arrays<'a>(SafeTensors<'a>);

impl<'a> Arrays<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, RestoreError> {
        SafeTensors::deserialize(bytes).map(Arrays).map_err(|error| RestoreError(error.to_string()))
    }

    /// The bytes of an array that must have this type.
    pub fn raw(&self, name: &str, dtype: Dtype) -> Result<&'a [u8], RestoreError> {
        let tensor = self.0.tensor(name).map_err(|error| RestoreError(format!("{name}: {error}")))?;
        if tensor.dtype() == dtype {
            Ok(tensor.data())
        } else {
            Err(RestoreError(format!("{name} holds {:?}, want {dtype:?}", tensor.dtype())))
        }
    }

    pub fn one_u64(&self, name: &str) -> Result<u64, RestoreError> {
        match self.u64(name)?[..] {
            [value] => Ok(value),
            ref values => Err(RestoreError(format!("{name} has {} entries, want 1", values.len()))),
        }
    }
}
