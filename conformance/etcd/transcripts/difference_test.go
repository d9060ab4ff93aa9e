package transcripts

// difference returns the lines that only one of two transcripts has.
func difference(theirs, ours transcript) (lines []string) {
	for _, line := range sideBySide(theirs, ours) {
		if line[0] != ' ' {
			lines = append(lines, line)
		}
	}
	return lines
}

// sideBySide returns all lines: after '-' those that only theirs has, after '+' those that only ours has, after ' ' the
// others.
func sideBySide(theirs, ours transcript) (lines []string) {
	// common[i][j] is the length of the longest common subsequence of theirs[i:] and ours[j:].
	common := make([][]int, len(theirs)+1)
	for i := range common {
		common[i] = make([]int, len(ours)+1)
	}
	for i := len(theirs) - 1; i >= 0; i-- {
		for j := len(ours) - 1; j >= 0; j-- {
			if theirs[i] == ours[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(theirs) || j < len(ours) {
		switch {
		case i < len(theirs) && j < len(ours) && theirs[i] == ours[j]:
			lines = append(lines, " "+theirs[i])
			i, j = i+1, j+1
		case j == len(ours) || i < len(theirs) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "-"+theirs[i])
			i++
		default:
			lines = append(lines, "+"+ours[j])
			j++
		}
	}
	return lines
}
