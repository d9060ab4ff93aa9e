# Title: A git push, seen by kubectl
# Description: A terminal session. While "kubectl get --watch" runs, a person clones the repository of a headless cluster, changes the number of replicas in a file, and pushes the commit. kubectl prints the change, and "trishanku log -p" names the person.
# Rows: 30
trishanku up --detach >up.log
trishanku demo --keep >demo.log
show_beside 'trishanku kubectl get deployment demo --watch'
until_shown '^demo .* 0/3 '
show 'git clone --quiet --branch=cluster/data .local/share/trishanku/default/upstream.git work'
show 'cd work'
show "sed -i '0,/\"replicas\": 3/s//\"replicas\": 5/' deployments/default/demo"
show "git commit --quiet --all --message='Run five' && git show --format='%h %an: %s' --unified=1"
show 'git push --quiet'
until_shown '^demo .* 0/5 +5 '
show 'cd ..'
show 'trishanku log -p deploy/demo | grep --after-context=2 Asha'
