// The folder that an agent's file tools may access. Resolves every path that a model writes, following
// symbolic links, so that neither `..` nor a link leads outside. Reads and writes no files. It guards against
// models, not against programs: a program in the folder could swap a link between the check and the use.
import { lstatSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { PocketError } from "../../errors.ts";
import { Refused } from "./tool-arguments.ts";

export class Workspace {
  /** Absolute, without symbolic links. */
  readonly root: string;

  /** Throws BAD_CONFIG if `folder` is not an existing folder. */
  constructor(folder: string) {
    try {
      this.root = realpathSync(folder);
    } catch {
      throw new PocketError("BAD_CONFIG", `The workspace ${folder} is not there.`);
    }
    if (!statSync(this.root).isDirectory()) {
      throw new PocketError("BAD_CONFIG", `The workspace ${folder} is not a folder.`);
    }
  }

  /** The absolute path; it may not exist yet. Throws Refused for a path outside the workspace. */
  locate(path: string): string {
    if (path.includes("\0")) throw new Refused("A path cannot have a NUL character.");
    const wanted = resolve(this.root, path);
    const real = followed(wanted);
    if (!this.#has(real)) {
      throw new Refused(
        `'${path}' is outside of the workspace. Use a path in it, relative to its top, such as '.'.`,
      );
    }
    return real;
  }

  /** As `locate`, for a path that must exist. */
  find(path: string): string {
    const real = this.locate(path);
    if (!entryAt(real)) {
      throw new Refused(`There is no '${path}' in the workspace. Use list to see what there is.`);
    }
    return real;
  }

  /** As `find`, for a regular file. */
  file(path: string): string {
    const real = this.find(path);
    const stat = statSync(real);
    if (stat.isDirectory()) throw new Refused(`'${path}' is a folder; use list for it.`);
    // Reading a pipe or a device may never end.
    if (!stat.isFile()) throw new Refused(`'${path}' is not a regular file.`);
    return real;
  }

  /** The path as the model sees it: relative, with forward slashes; `.` for the root. */
  name(real: string): string {
    return relative(this.root, real).split(sep).join("/") || ".";
  }

  #has(real: string): boolean {
    const path = relative(this.root, real);
    return path === "" || !(path === ".." || path.startsWith(`..${sep}`) || isAbsolute(path));
  }
}

/**
 * The path with links followed in its existing part. Throws Refused for a loop of links and for a dangling
 * link.
 */
function followed(path: string, depth = 0): string {
  try {
    return realpathSync(path);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ELOOP" || depth > 4096) throw new Refused(`'${path}' is a loop of symbolic links.`);
    if (code === "ENAMETOOLONG") throw new Refused("The path is too long.");
    const parent = dirname(path);
    if (entryAt(path)?.isSymbolicLink())
      throw new Refused(`'${basename(path)}' is a symbolic link that leads nowhere.`);
    return parent === path ? path : join(followed(parent, depth + 1), basename(path));
  }
}

/** Undefined if nothing exists at the path. */
function entryAt(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
