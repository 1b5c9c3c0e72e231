/// The driver's codes, as clients know them (bcs-common's error codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// The body is of another kind than its route, or does not say its kind.
    RequestData,
    /// The upstream could not be asked.
    HttpDo,
    /// The body is not the JSON that is wanted.
    JsonDecode,
    /// What the body says cannot be written as JSON.
    JsonEncode,
    /// The body could not be read.
    ReadBody,
    /// The driver itself cannot serve.
    Driver,
    /// The body says something that cannot be.
    Parameter,
    /// A message of an unknown type.
    MessageType,
    /// A filter refused the request.
    Filter,
}

impl Code {
    /// The number in the envelope.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::RequestData => 1_405_008,
            Self::HttpDo => 1_405_009,
            Self::JsonDecode => 1_405_010,
            Self::JsonEncode => 1_405_011,
            Self::ReadBody => 1_405_012,
            Self::Driver => 1_405_230,
            Self::Parameter => 1_405_231,
            Self::MessageType => 1_405_233,
            Self::Filter => 1_405_234,
        }
    }
}
