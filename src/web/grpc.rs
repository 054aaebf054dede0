//! The details of a gRPC status, written without a library: they are one message whose fields never change.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::StatusCode;

/// The status code for an HTTP status: RESOURCE_EXHAUSTED, UNAVAILABLE or INTERNAL.
pub(super) fn code(status: StatusCode) -> u8 {
    match status {
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        _ => 13,
    }
}

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The value of `grpc-status-details-bin`: a `google.rpc.Status` with a `google.rpc.RetryInfo`.
pub(super) fn status_details(code: u8, message: &str, retry_after: Duration) -> String {
    let mut delay = Vec::new();
    varint_field(&mut delay, 1, retry_after.as_secs());
    varint_field(&mut delay, 2, u64::from(retry_after.subsec_nanos()));
    let mut retry_info = Vec::new();
    bytes_field(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    bytes_field(&mut any, 1, RETRY_INFO.as_bytes());
    bytes_field(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    varint_field(&mut status, 1, code.into());
    bytes_field(&mut status, 2, message.as_bytes());
    bytes_field(&mut status, 3, &any);
    STANDARD_NO_PAD.encode(status)
}

fn varint_field(message: &mut Vec<u8>, field: u8, value: u64) {
    // A missing field means zero.
    if value > 0 {
        message.push(field << 3);
        varint(message, value);
    }
}

fn bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}
