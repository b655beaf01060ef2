// A guest's pass: a certificate and its key, from the fragment of a link; the page signs with it, by WebCrypto.
//
//     const guest = readPass(text);                              // { certificate, key, name }, or null: not a pass
//     const proof = await sign(subtle, guest, nonce, host, path) // 64 bytes; host and path as the page has dialed them

const CURVE = { name: "ECDSA", namedCurve: "P-256" };
const HALF = 32; // bytes of a key, and of each coordinate
// In a certificate, before the coordinates: prime256v1, a bit string of 66 bytes, an uncompressed point.
const POINT = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04];

const URI = 0x86; // its tag in a certificate, before its length and "spiffe://realm/guest/ada"
const SCHEME = "spiffe://";

const toText = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const toBytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

export function readPass(text) {
  const parts = (text ?? "").split(".");
  if (parts.length !== 2) return null;
  try {
    const [certificate, key] = parts.map(toBytes);
    return key.length === HALF && point(certificate) ? { certificate, key, name: nameIn(certificate) } : null;
  } catch { // not base64
    return null;
  }
}

/** Return the name that the certificate is of, "guest.ada"; "" if it has none, which the peer will refuse. */
function nameIn(certificate) {
  const letters = String.fromCharCode(...certificate);
  for (let at = letters.indexOf(SCHEME); at !== -1; at = letters.indexOf(SCHEME, at + 1)) {
    if (certificate[at - 2] === URI) return letters.slice(at, at + certificate[at - 1]).split("/").slice(3).join(".");
  }
  return "";
}

function point(certificate) {
  for (let at = 0; at + POINT.length + 2 * HALF <= certificate.length; at++) {
    if (POINT.every((byte, i) => certificate[at + i] === byte)) {
      const start = at + POINT.length;
      return [certificate.slice(start, start + HALF), certificate.slice(start + HALF, start + 2 * HALF)];
    }
  }
  return null;
}

export async function sign(subtle, { certificate, key }, nonce, host, path) {
  const [x, y] = point(certificate).map(toText);
  const own = await subtle.importKey("jwk", { kty: "EC", crv: CURVE.namedCurve, d: toText(key), x, y }, CURVE, false, ["sign"]);
  const head = new TextEncoder().encode("nngkit page 1\0");
  const tail = new TextEncoder().encode(host + path);
  const message = Uint8Array.from([...head, ...nonce, ...tail]);
  return new Uint8Array(await subtle.sign({ name: "ECDSA", hash: "SHA-256" }, own, message));
}
