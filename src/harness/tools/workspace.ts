// The folder that an agent's file tools may touch. Every path a model writes is resolved here: symbolic links are
// followed first, so that neither `..` nor a link leads out. It reads and writes nothing itself. A program that
// runs in the folder at the same time could swap a link between the check and the use: it is a fence for models,
// not a jail for programs.
import { lstatSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { PocketError } from "../../errors.ts";
import { Refused } from "./tool-arguments.ts";

export class Workspace {
  /** Absolute, without symbolic links. */
  readonly root: string;

  /** Throws BAD_CONFIG for a folder that is not there. */
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

  /** An absolute path in the workspace that may not exist yet. Throws Refused for one outside of it. */
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

  /** As `locate`, for what has to exist. */
  find(path: string): string {
    const real = this.locate(path);
    if (!entryAt(real)) {
      throw new Refused(`There is no '${path}' in the workspace. Use list to see what there is.`);
    }
    return real;
  }

  /** As `find`, for a file. */
  file(path: string): string {
    const real = this.find(path);
    const stat = statSync(real);
    if (stat.isDirectory()) throw new Refused(`'${path}' is a folder; use list for it.`);
    // A pipe or a device would be read for ever.
    if (!stat.isFile()) throw new Refused(`'${path}' is not a regular file.`);
    return real;
  }

  /** How a path in it is called towards the model: relative, with forward slashes; the top is `.`. */
  name(real: string): string {
    return relative(this.root, real).split(sep).join("/") || ".";
  }

  #has(real: string): boolean {
    const path = relative(this.root, real);
    return path === "" || !(path === ".." || path.startsWith(`..${sep}`) || isAbsolute(path));
  }
}

/** The path with the links of its existing part followed; a dangling link counts as what it points at. */
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

/** Undefined where there is nothing, also below a file. */
function entryAt(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
