"""The bill of materials names the Debian packages of an image."""

from pathlib import Path

import pytest

from release.sbom import debian_components, debian_licences

STANZA = "Package: libacme1\nVersion: 1:2.3+dfsg-4\nArchitecture: amd64\nDescription: a library\n of Acme\n"


def image_root(folder: Path, copyrights: str) -> Path:
    for name, text in {
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "var/lib/dpkg/status.d/libacme1": STANZA,
        "usr/share/doc/libacme1/copyright": copyrights,
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_debian_package_has_version_licence_and_package_url(tmp_path: Path) -> None:
    root = image_root(tmp_path, "Format: x\n\nFiles: *\nLicense: MIT\n text\n\nFiles: b\nLicense: GPL-2+\n")
    assert debian_components(root) == [
        {
            "type": "library",
            "bom-ref": "deb:libacme1@1:2.3+dfsg-4",
            "name": "libacme1",
            "version": "1:2.3+dfsg-4",
            "purl": "pkg:deb/debian/libacme1@1%3A2.3%2Bdfsg-4?arch=amd64&distro=debian-13",
            "licenses": [{"license": {"name": "GPL-2+"}}, {"license": {"name": "MIT"}}],
        }
    ]


@pytest.mark.parametrize(
    ("text", "licences"),
    [
        ("The text is in /usr/share/common-licenses/LGPL-2.1.\nLicense: of old times", ["LGPL-2.1"]),
        ("Do what you want.", ["see usr/share/doc"]),
    ],
)
def test_an_old_file_of_copyrights_names_what_it_refers_to(text: str, licences: list[str]) -> None:
    assert debian_licences(text) == licences


def test_a_package_without_its_copyrights_is_not_left_out(tmp_path: Path) -> None:
    root = image_root(tmp_path, "")
    (root / "usr/share/doc/libacme1/copyright").unlink()
    with pytest.raises(FileNotFoundError, match="libacme1"):
        debian_components(root)
