//! A request of the control socket: any bytes are read or refused, and what is read writes back as itself.

use weft::control::{MAX_REQUEST, read_request};

pub fn run(data: &[u8]) {
    match read_request(data) {
        Ok(request) => {
            let line = serde_json::to_vec(&request).expect("a request is always JSON");
            assert!(data.len() <= MAX_REQUEST && line.len() <= MAX_REQUEST);
            assert_eq!(read_request(&line), Ok(request), "{}", String::from_utf8_lossy(&line));
        }
        Err(refusal) => assert!(!refusal.is_empty()),
    }
}
