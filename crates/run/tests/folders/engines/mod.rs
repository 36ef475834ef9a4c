//! Models of other engines: exports to CTranslate2 and ONNX, and imports of CTranslate2's models.

mod ctranslate2;
mod from_ctranslate2;
mod onnx;
