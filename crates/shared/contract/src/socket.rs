//! One frame per seqpacket message, with the descriptors that belong to it. Used on both sides of every boundary.
use crate::{MAX_FRAME, WireError, decode, encode};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors a frame may carry: four faces of egress and its transparent ports are the most; a launch has the
/// plan, the event socket, three streams and the attachments.
pub const MAX_DESCRIPTORS: usize = 4 + crate::egress::MAX_TRANSPARENT;

thread_local! {
    /// Where frames are received: room for the largest, and once it is there only what a frame fills is touched. A
    /// fresh one for each frame would have to be cleared, and small processes would spend their time on its pages.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Two connected ends, closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one frame.
pub fn send<T: Serialize>(socket: impl AsFd, frame: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = encode(frame).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one frame"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one frame and its descriptors; `None` when the other side is gone.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    FRAME
        .try_with(|frame| match frame.try_borrow_mut() {
            Ok(mut bytes) => receive_into(&socket, &mut bytes),
            Err(_) => receive_into(&socket, &mut Vec::new()),
        })
        .unwrap_or_else(|_| receive_into(&socket, &mut Vec::new()))
}

fn receive_into<T: DeserializeOwned>(
    socket: impl AsFd,
    bytes: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    if bytes.is_empty() {
        // Of the allocator as zeros: filling it here would touch every page of it, in every small process.
        *bytes = vec![0; MAX_FRAME];
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    // Descriptors first: on every error below they are closed instead of leaked.
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other(WireError::TooLarge(MAX_FRAME + 1)));
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((
        decode(&bytes[..got.bytes]).map_err(io::Error::other)?,
        descriptors,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToInit;

    #[test]
    fn an_oversized_or_malformed_message_is_refused_and_a_closed_end_is_told() {
        let (a, b) = pair().unwrap();
        rustix::net::send(&a, &vec![b' '; MAX_FRAME + 10], SendFlags::empty()).unwrap();
        assert!(receive::<ToInit>(&b).is_err());
        rustix::net::send(&a, b"{", SendFlags::empty()).unwrap();
        assert!(receive::<ToInit>(&b).is_err());
        send(&a, &ToInit::Go, &[a.as_fd()]).unwrap();
        let (frame, descriptors) = receive::<ToInit>(&b).unwrap().unwrap();
        assert_eq!((frame, descriptors.len()), (ToInit::Go, 1));
        drop((a, descriptors));
        assert!(receive::<ToInit>(&b).unwrap().is_none());
    }

    #[test]
    fn nothing_of_a_longer_frame_is_taken_for_part_of_the_next() {
        let (a, b) = pair().unwrap();
        let wordy = "x".repeat(MAX_FRAME / 2);
        for said in [wordy.as_str(), "short", wordy.as_str(), ""] {
            send(&a, &said, &[]).unwrap();
            assert_eq!(receive::<String>(&b).unwrap().unwrap().0, said);
        }
    }

    #[test]
    fn a_frame_of_any_length_is_received_whole_and_one_by_one() {
        let (a, b) = pair().unwrap();
        let texts = [0, 1, 4096, MAX_FRAME - 2].map(|length| "x".repeat(length));
        for text in &texts {
            send(&a, text, &[a.as_fd()]).unwrap();
            send(&a, &ToInit::Go, &[]).unwrap();
            let (whole, descriptors) = receive::<String>(&b).unwrap().unwrap();
            assert!(whole == *text && descriptors.len() == 1, "{} bytes", text.len());
            assert_eq!(receive::<ToInit>(&b).unwrap().unwrap().0, ToInit::Go);
        }
    }
}
