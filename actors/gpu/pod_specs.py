"""The CDI spec of a pod that has it generated: `--cdi-source pod`.

It is kept on disk under its identity, so that a supervisor that was started anew on the same boot finds it there. What
was right once is verified all the same, and made anew, once, when a path of it is gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.cdi import SPEC_BYTES_MAX
from statemachine.problem import ProblemError

from .checked_specs import MadeSpec, read_strictly, require_right, require_usable, stamps_for, with_libraries
from .desk import KeptSpec
from .driver_files import library_folder, library_folders, library_versions, require_loaded
from .generating import Generator, unwritable
from .spec_identity import identity_of
from .toolkit import PROGRAM_FOLDERS, TOOL, find_program, toolkit_directories, toolkit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.cdi import Spec
    from actors.ports import DriverPlaces, Files, Processes, Wall

    from .inventory import Inventory
    from .toolkit import Program, Toolkit

SPEC_NAME: Final = "nvidia.json"


class PodSpecs:
    """Makes them.

    Args:
        files, processes, wall: the ports.
        directory: of all specs, `StateDir.cdi`.
        places: where the driver is.
        toolkit_dir: where the toolkit is; None looks where it usually is.
        program_folders: the directories of PATH, for that.
    """

    def __init__(
        self,
        *,
        files: Files,
        processes: Processes,
        wall: Wall,
        directory: Path,
        places: DriverPlaces,
        toolkit_dir: Path | None = None,
        program_folders: Sequence[Path] = PROGRAM_FOLDERS,
    ) -> None:
        self._files, self._processes, self._wall = files, processes, wall
        self._directory, self._places = directory, places
        self._named = toolkit_dir
        self._directories = toolkit_directories(toolkit_dir, program_folders)
        self._generator = Generator(processes=processes, files=files, wall=wall, directory=directory, places=places)
        self._toolkit: Toolkit | None = None

    async def watched(self) -> tuple[Path, ...]:
        """The directories in which something comes when the toolkit, the driver or a device does."""
        root = self._places.driver_root
        folder = await library_folder(self._files, root) or library_folders(root)[0]
        # Below another root everything comes with a mount there.
        roots = () if root == Path("/") else (root,)
        return tuple(dict.fromkeys((*toolkit_directories(self._named, ()), folder, *roots, self._dev)))

    async def make(self, inventory: Inventory, driver: str, last: MadeSpec | None) -> MadeSpec:
        """The spec for these GPUs: the last one where it is still right, that on disk, or a new one.

        Raises:
            ToolkitHungError: StepDeadlineExceeded.
            ProblemError: ToolkitNotFound, GenerateFailed, NvmlUnavailable, …
        """
        require_usable(inventory)
        program = await find_program(self._files, self._directories)
        toolkit = await self._toolkit_of(program)
        folder = await library_folder(self._files, self._places.driver_root)
        versions = await library_versions(self._files, folder)
        require_loaded(versions, driver, folder)
        identity = await identity_of(
            self._files, self._wall, self._places, inventory, driver=driver, maker=(*_maker(toolkit), *versions)
        )
        kept = last.kept if last is not None and last.kept.identity == identity else None
        kept = kept or await self._from_disk(identity, driver, toolkit)
        if kept is not None:
            made = await self._stamped(kept, program)
            try:
                await require_right(self._files, kept.spec, inventory)
            except ProblemError:
                pass  # a path of it is gone, or a GPU has come back that it lacks
            else:
                return made
        return await self._generated(inventory, identity, driver, toolkit)

    @property
    def _dev(self) -> Path:
        return self._places.dev_root / "dev"

    async def _toolkit_of(self, program: Program) -> Toolkit:
        if self._toolkit is None or self._toolkit.program != program:
            self._toolkit = None
            self._toolkit = await toolkit_of(self._files, self._processes, program)
        return self._toolkit

    async def _from_disk(self, identity: str, driver: str, toolkit: Toolkit) -> KeptSpec | None:
        path = self._directory / identity / SPEC_NAME
        try:
            spec = read_strictly(await self._files.read(path, limit_bytes=SPEC_BYTES_MAX), path)
        except (OSError, ProblemError):
            return None  # there is none, or none that can be used: it is made anew
        return await with_libraries(self._files, self._kept(spec, identity, driver, toolkit))

    async def _generated(self, inventory: Inventory, identity: str, driver: str, toolkit: Toolkit) -> MadeSpec:
        data = await self._generator.generate(toolkit, inventory)
        spec = read_strictly(data, toolkit.program.path)
        kept = await with_libraries(self._files, self._kept(spec, identity, driver, toolkit))
        made = await self._stamped(kept, toolkit.program)
        await require_right(self._files, spec, inventory)
        try:
            await self._files.make_directory(kept.path.parent)
            await self._files.replace(kept.path, data)
        except OSError as error:
            raise ProblemError(unwritable(kept.path, error)) from error
        return made

    def _kept(self, spec: Spec, identity: str, driver: str, toolkit: Toolkit) -> KeptSpec:
        path = self._directory / identity / SPEC_NAME
        return KeptSpec(
            identity=identity,
            path=path,
            spec=spec,
            driver=driver,
            toolkit=toolkit.version.text,
            hook=toolkit.hook,
            libraries=(),
        )

    async def _stamped(self, kept: KeptSpec, program: Program) -> MadeSpec:
        """To be verified after this, so that whatever happens from here on is seen."""
        stamps = await stamps_for(
            self._files,
            kept.spec,
            directories=(self._dev,),
            others=self._programs(program),
            now_s=self._wall.now_s(),
        )
        return MadeSpec(kept=kept, stamps=stamps)

    def _programs(self, found: Program) -> tuple[Path, ...]:
        """The program, and where another one would come before it."""
        count = self._directories.index(found.path.parent) + 1
        return tuple(directory / name for directory in self._directories[:count] for name in (f"{TOOL}.real", TOOL))


def _maker(toolkit: Toolkit) -> tuple[str, ...]:
    program = toolkit.program
    told = (program.path, program.file.inode, program.file.mtime_ns, program.file.size_bytes, toolkit.hook)
    return (toolkit.version.text, *map(str, told))
