# Completion in bash of the flags of StageGPT's programs and of their values, as --help lists them. `cmake --install` puts it
# where the package bash-completion finds it. From a source tree: source completions/stagegpt.bash

# _stagegpt_flag FLAG: the lines of --help, on standard input, about a flag, in one line.
_stagegpt_flag() {
  awk -v flag="$1" '
    /^ *-/ { on = ($1 == flag) }
    !/^ *-/ && !/^          / { on = 0 }
    on { line = line " " $0 }
    END { print line }'
}

_stagegpt() {
  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} help about kind names
  # bash splits --flag=value into three words.
  if [ "$word" = "=" ]; then
    word=
  elif [ "$flag" = "=" ]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  help=$("$1" --help 2>/dev/null) || return
  about=$(_stagegpt_flag "$flag" <<<"$help")
  read -r _ kind _ <<<"$about"
  case $kind in
    NAME*)
      names=${about##*: }
      COMPREPLY=($(compgen -W "${names//,/}" -- "$word"))
      return ;;
    PATH* | "[PATH]"*)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      [[ $kind = PATH* ]] && return ;;
    N | N=* | X | X=* | TEXT*) return ;;
  esac
  [[ -n $word && $word != -* ]] || COMPREPLY+=($(compgen -W "$(grep -oE '^ +(-h,)?--[a-z0-9-]+' <<<"$help" | sed 's/.*--/--/')" -- "$word"))
}

complete -F _stagegpt stage{0,1,2,3}_{train,generate,evaluate,inspect,verify,bench}{,_emulated} prepare_data convert_checkpoint \
  compare_stages doctor
