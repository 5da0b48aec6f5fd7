# `cmake --install`: the programs in bin/, what they need to run in share/stagegpt/ (common/system/shared_files.h), documentation
# and completions. `cpack` makes a Debian package of the same; scripts/package.sh sets the options for one.
set(programs prepare_data convert_checkpoint compare_stages doctor)
if(STAGEGPT_SANITIZE)  # built on request there
  list(REMOVE_ITEM programs compare_stages doctor)
endif()
foreach(stage stage0 stage1 stage2 stage3)
  foreach(job train generate evaluate inspect verify bench)
    foreach(suffix "" _emulated)
      if(TARGET ${stage}_${job}${suffix})
        list(APPEND programs ${stage}_${job}${suffix})
      endif()
    endforeach()
  endforeach()
endforeach()

install(TARGETS ${programs} RUNTIME DESTINATION bin)
install(FILES data/dummy.txt data/README.md DESTINATION share/stagegpt/data)
install(PROGRAMS scripts/download_data.sh scripts/download_gpt2.sh DESTINATION share/stagegpt/scripts)
install(FILES scripts/download.sh DESTINATION share/stagegpt/scripts)
install(DIRECTORY python DESTINATION share/stagegpt FILES_MATCHING PATTERN "*.py" PATTERN "*.toml")
install(FILES README.md CHANGELOG.md CITATION.cff DESTINATION share/doc/stagegpt)
install(FILES LICENSE DESTINATION share/doc/stagegpt RENAME copyright)
install(DIRECTORY docs DESTINATION share/doc/stagegpt)
foreach(program IN LISTS programs)  # bash-completion looks for a file of the program's name
  install(FILES completions/stagegpt.bash DESTINATION share/bash-completion/completions RENAME ${program})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stagegpt)
set(CPACK_PACKAGE_VENDOR "The StageGPT developers")
set(CPACK_PACKAGE_CONTACT "The StageGPT developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train GPT-2 on one CPU, many processes, or the emulator of a GPU")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0-openmp)  # loaded at run time: --cpu-matmul blas, emulated stages
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)       # mpirun, for stages 1 and 3
set(CPACK_DEBIAN_PACKAGE_SUGGESTS bash-completion)
include(CPack)
